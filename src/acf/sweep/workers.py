"""Where points are evaluated: in this process, in one process per core, or on a Ray cluster."""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from math import ceil
from typing import Any, Protocol

from acf.errors import SweepError
from acf.extras import import_optional
from acf.processes import end_with_parent
from acf.sweep.evaluation import Attempt, Evaluation, attempt, attempt_all
from acf.sweep.sweep import Changes

LONGEST_BATCH = 16
"""Points that a process takes at a time: enough neighbours to share work, few enough to lose where it is killed."""

DIED = "the process that evaluated it died; it was killed, or ran out of memory"


class Workers(Protocol):
    """Evaluates points in any order."""

    @property
    def width(self) -> int:
        """Points that are evaluated at the same time."""
        ...

    def evaluate(self, evaluation: Evaluation, points: Sequence[Changes]) -> Iterator[list[Attempt]]:
        """Attempts in the order in which they finish, some at a time."""
        ...


class ThisProcess:
    """One point after another, without another process."""

    width = 1

    def evaluate(self, evaluation: Evaluation, points: Sequence[Changes]) -> Iterator[list[Attempt]]:
        """Attempts in order, one at a time."""
        for changes in points:
            yield [attempt(evaluation, changes)]


class Processes:
    """``width`` processes of this machine; a point that kills its process fails alone."""

    def __init__(self, width: int) -> None:
        self.width = width
        # A server that has imported everything and runs no threads forks the processes: they start at once, and inherit
        # no lock that a thread of this process holds.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["acf.sweep.evaluation"])

    def evaluate(self, evaluation: Evaluation, points: Sequence[Changes]) -> Iterator[list[Attempt]]:
        """Attempts of batches of neighbours, as they finish."""
        waiting = batches(points, self.width)
        while waiting:
            done: set[int] = set()
            for place, attempts in self._run(evaluation, waiting):
                done.add(place)
                yield attempts
            lost = [batch for place, batch in enumerate(waiting) if place not in done]
            # Batches run in order, so the one that killed its process is among the first that were lost.
            suspects, waiting = lost[: self.width], lost[self.width :]
            for changes in (changes for batch in suspects for changes in batch):
                yield self._alone(evaluation, changes)

    def _run(self, evaluation: Evaluation, waiting: Sequence[list[Changes]]) -> Iterator[tuple[int, list[Attempt]]]:
        """The places of batches in ``waiting`` with their attempts; a process that dies takes unfinished ones along."""
        with self._pool(self.width) as pool:
            places = {pool.submit(attempt_all, evaluation, batch): place for place, batch in enumerate(waiting)}
            try:
                for future in as_completed(places):
                    if not isinstance(future.exception(), BrokenProcessPool):
                        yield places[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _pool(self, width: int) -> ProcessPoolExecutor:
        """Processes that share the cores: a training run in each with a thread per core would be many times slower."""
        threads = max(1, cores() // self.width)
        return ProcessPoolExecutor(width, self._context, initializer=_start_worker, initargs=(threads,))

    def _alone(self, evaluation: Evaluation, changes: Changes) -> list[Attempt]:
        """A point in a process of its own, which may die."""
        with self._pool(1) as pool:
            try:
                return pool.submit(attempt_all, evaluation, [changes]).result()
            except BrokenProcessPool:
                return [Attempt(changes, failure=DIED)]


class RayCluster:
    """A Ray cluster at ``address`` ("local" starts one on this machine); the package must be installed on its nodes."""

    def __init__(self, address: str) -> None:
        self._ray = _import_ray()
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            raise SweepError(
                f"no Ray cluster answers at {address!r} ({str(error).splitlines()[0]}); "
                "start one with `ray start --head`, or use --ray local"
            ) from error
        self.width = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def evaluate(self, evaluation: Evaluation, points: Sequence[Changes]) -> Iterator[list[Attempt]]:
        """Attempts of batches of neighbours, as they finish; Ray retries a batch whose node is lost."""
        remote = self._ray.remote(attempt_all)
        waiting = {remote.remote(evaluation, batch): batch for batch in batches(points, self.width)}
        while waiting:
            (reference, *_), _ = self._ray.wait(list(waiting), num_returns=1)
            batch = waiting.pop(reference)
            try:
                yield self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                if len(batch) == 1:
                    yield [Attempt(batch[0], failure=reason)]
                else:
                    waiting |= {remote.remote(evaluation, [changes]): [changes] for changes in batch}

    def close(self) -> None:
        """Leave the cluster; a local one ends."""
        self._ray.shutdown()


def batches(points: Sequence[Changes], width: int) -> list[list[Changes]]:
    """Neighbouring points in batches: about four for each of ``width`` workers, none above `LONGEST_BATCH`.

    >>> [len(batch) for batch in batches([{"tile": 8}] * 5, width=1)]
    [2, 2, 1]
    """
    size = min(LONGEST_BATCH, max(1, ceil(len(points) / (4 * width))))
    return [list(points[first : first + size]) for first in range(0, len(points), size)]


def local_workers(jobs: int) -> Workers:
    """``jobs`` processes of this machine; 0: one per core that this process may use; 1: this process alone."""
    if jobs < 0:
        raise SweepError(f"jobs {jobs} is below 0; use 0 for all cores, or the number of processes")
    width = jobs or cores()
    return ThisProcess() if width == 1 else Processes(width)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _start_worker(threads: int) -> None:
    """Called in a new process of this machine."""
    end_with_parent()
    _limit_threads(threads)


def _limit_threads(threads: int) -> None:
    """Let torch compute with ``threads`` threads in this process, now or once it is imported."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def _import_ray() -> Any:
    import_optional("ray.exceptions", needed_by="--ray")
    return import_optional("ray", needed_by="--ray")
