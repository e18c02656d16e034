"""List scheduling: jobs go, in order, to the first worker that becomes free."""

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled


@compiled
def makespan(job_cycles: NDArray[np.int64], repeats: int, workers: int) -> int:
    """Cycles until all jobs are done when each job runs ``repeats`` times and goes to the first free worker.

    Shorter jobs never make it longer: the sorted vector of loads is monotone in every job's length.
    """
    free_at = np.zeros(workers, dtype=np.int64)  # a binary heap: free_at[0] is the first to become free
    last = 0
    for index in range(job_cycles.size):
        for _ in range(repeats):
            done = free_at[0] + job_cycles[index]
            last = max(last, done)
            place = 0
            while True:
                child = 2 * place + 1
                if child >= workers:
                    break
                if child + 1 < workers and free_at[child + 1] < free_at[child]:
                    child += 1
                if free_at[child] >= done:
                    break
                free_at[place] = free_at[child]
                place = child
            free_at[place] = done
    return last
