"""Runs one after another, or several at a time in processes that share the device."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

import torch

from acf.bench.accuracy.training import RunRecord, TrainingSpec, train_once
from acf.processes import end_with_parent
from acf.zoo.data.images import DeviceImages, ImageSet

Task = tuple[str, int]
"""A method and a seed."""


@dataclass(frozen=True)
class Workers:
    """``count`` processes on one ``device``; no run is started that might end later than ``budget_s`` seconds."""

    device: str = "cpu"
    count: int = 1
    budget_s: float = float("inf")


def run_tasks(spec: TrainingSpec, images: ImageSet, tasks: Sequence[Task], workers: Workers) -> Iterator[RunRecord]:
    """The record of every task (method and seed) as it finishes.

    A run is expected to take as long as the longest so far. A run that fails does not stop the others; its error is
    raised when they are done.
    """
    watch = _Watch(workers.budget_s)
    if workers.count == 1:
        device = torch.device(workers.device)
        on_device = DeviceImages(images, device)
        for method, seed in tasks:
            if watch.has_time:
                yield watch.note(train_once(spec, on_device, method, seed, device))
        return
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(workers.count, context, _Worker.start, (spec, images, workers.device)) as pool:
        yield from _run_in_pool(pool, workers.count, tasks, watch)


def _run_in_pool(
    pool: ProcessPoolExecutor, workers: int, tasks: Sequence[Task], watch: "_Watch"
) -> Iterator[RunRecord]:
    running: set[Future[RunRecord]] = set()
    failed: list[Future[RunRecord]] = []
    waiting = iter(tasks)
    while True:
        while len(running) < workers and watch.has_time and (task := next(waiting, None)) is not None:
            running.add(pool.submit(_Worker.run, *task))
        if not running:
            break
        done, running = wait(running, return_when=FIRST_COMPLETED)
        failed += [future for future in done if future.exception() is not None]
        for future in done.difference(failed):
            yield watch.note(future.result())
    for future in failed:
        future.result()


class _Worker:
    """The state of one worker process: spec, device and the images on it."""

    spec: TrainingSpec
    device: torch.device
    images: DeviceImages

    @classmethod
    def start(cls, spec: TrainingSpec, images: ImageSet, device: str) -> None:
        """Called in the process; torch passes the images in memory that all workers share."""
        end_with_parent()
        torch.set_num_threads(1)
        cls.spec, cls.device = spec, torch.device(device)
        cls.images = DeviceImages(images, cls.device)

    @classmethod
    def run(cls, method: str, seed: int) -> RunRecord:
        return train_once(cls.spec, cls.images, method, seed, cls.device)


class _Watch:
    """Whether another run would end in time."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.deadline = clock() + budget_s
        self.longest_s = 0.0

    @property
    def has_time(self) -> bool:
        return self.clock() + self.longest_s <= self.deadline

    def note(self, record: RunRecord) -> RunRecord:
        self.longest_s = max(self.longest_s, record.seconds)
        return record
