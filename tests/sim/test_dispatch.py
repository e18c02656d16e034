"""Handing jobs to the first free worker."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acf.sim.dispatch import makespan


def by_heap(jobs: list[int], repeats: int, workers: int) -> int:
    free_at = [0] * workers
    last = 0
    for job in jobs:
        for _ in range(repeats):
            done = heapq.heappop(free_at) + job
            heapq.heappush(free_at, done)
            last = max(last, done)
    return last


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 4), st.integers(1, 9))
def test_the_last_job_ends_when_a_plain_queue_says(jobs: list[int], repeats: int, workers: int) -> None:
    assert makespan(np.array(jobs, dtype=np.int64), repeats, workers) == by_heap(jobs, repeats, workers)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=40), st.integers(1, 9))
def test_shorter_jobs_never_take_longer(pairs: list[tuple[int, int]], workers: int) -> None:
    short = np.array([min(pair) for pair in pairs], dtype=np.int64)
    long = np.array([max(pair) for pair in pairs], dtype=np.int64)
    assert makespan(short, 1, workers) <= makespan(long, 1, workers)
