"""Processes of a sweep share the cores of the machine."""

import os

import pytest
import torch

from acf.sweep import workers
from acf.sweep.workers import Processes, cores, local_workers


def test_a_process_computes_with_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "9")  # set again when the test ends
    before = torch.get_num_threads()
    try:
        workers._limit_threads(1)
        assert torch.get_num_threads() == 1
        assert os.environ["OMP_NUM_THREADS"] == "1"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("width", "threads"), [(1, 8), (3, 2), (8, 1), (20, 1)])
def test_every_process_of_a_pool_gets_the_same_share(width: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 8)
    with Processes(width)._pool(1) as pool:
        assert pool._initargs == (threads,)


def test_all_cores_work_unless_jobs_says_otherwise() -> None:
    assert local_workers(0).width == cores()
    assert local_workers(1).width == 1
