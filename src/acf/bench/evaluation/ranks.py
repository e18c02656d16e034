"""The processes that train together under `torchrun`: who they are, and what they must agree on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed

from acf.bench.machine import choose_device
from acf.errors import FileError, SparsityError
from acf.train.lost_ranks import naming_lost_ranks

REMEDY = "read what it said last, then call torchrun again: finished runs and the last checkpoint are kept"
"""What to do where another process is gone."""


@dataclass(frozen=True)
class Ranks:
    """This process among ``count``; the first (``rank`` 0) measures and writes."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process measures and writes."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        """Whether gradients are averaged over processes."""
        return self.count > 1

    def share(self, size: int) -> slice:
        """This process's part of a batch of ``size`` examples.

        >>> Ranks(1, 4).share(128)
        slice(32, 64, None)
        """
        own = size // self.count
        return slice(self.rank * own, (self.rank + 1) * own)

    def wait(self) -> None:
        """Until all are here."""
        if self.several:
            distributed.barrier()

    def mean(self, value: float) -> float:
        """The mean of ``value`` over all processes; all must call."""
        if not self.several:
            return value
        values: list[float] = [0.0] * self.count
        distributed.all_gather_object(values, value)
        return sum(values) / self.count

    def agree(self, what: str, value: object) -> None:
        """Refuse to go on where processes see different files; all must call."""
        if not self.several:
            return
        seen: list[object] = [None] * self.count
        distributed.all_gather_object(seen, value)
        if any(each != seen[0] for each in seen):
            raise FileError(f"the processes see different files: {what} is {seen}; use an --out folder that all share")


def current_ranks() -> Ranks:
    """This process in the default process group; one of one where there is no group."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Ranks()
    return Ranks(distributed.get_rank(), distributed.get_world_size())


def is_first_process() -> bool:
    """Whether this process may print, by the environment that `torchrun` sets."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str, batch: int) -> Iterator[torch.device]:
    """The device of this process, in a process group where `torchrun` has started several (NCCL, or gloo on CPUs)."""
    kind = choose_device(device)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if batch % count:
        raise SparsityError(f"a batch of {batch} does not divide among {count} processes; pass a multiple as --batch")
    if count == 1:
        yield torch.device(kind)
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if kind == "cuda":
        torch.cuda.set_device(local)
    distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    try:
        with naming_lost_ranks(REMEDY):
            yield torch.device(kind, local) if kind == "cuda" else torch.device(kind)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
