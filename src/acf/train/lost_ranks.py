"""A rank of a distributed run that is gone: the others end with one line that names it, not with torch's trace-back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch

from acf.errors import LostRankError

ANSWER_SECONDS = 10.0
"""How long a rank waits for the others to say that they are there."""

CONNECTION_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "socket timeout",
    "timed out",
    "failed to recv",
    "failed to send",
    "failed to connect",
    "remote process exited",
)
"""What gloo, NCCL and torch's stores say of a peer that is gone, in lower case."""


def is_lost_connection(error: BaseException) -> bool:
    """Whether torch means by ``error`` that another rank does not answer.

    >>> is_lost_connection(RuntimeError("[pair.cc:537] Connection closed by peer [127.0.0.1]:3421"))
    True
    """
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in CONNECTION_LOST)


@contextmanager
def naming_lost_ranks(remedy: str) -> Iterator[None]:
    """Raise the error of a lost connection as a `LostRankError` that names the lost ranks; for all ranks to call.

    The default process group is destroyed first, so that ranks which wait for this one notice, too. ``remedy`` says
    what to do.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LostRankError) or not is_lost_connection(error):
            raise
        rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
        store = torch.distributed.distributed_c10d._get_default_store()
        torch.distributed.destroy_process_group()
        lost = silent_ranks(store, rank, count)
        reason = str(error).splitlines()[0][-120:]
        raise LostRankError(f"rank {rank} of {count} lost {_named(lost)} ({reason}); {remedy}") from error


def silent_ranks(store: Any, rank: int, count: int) -> list[int]:
    """The ranks that do not say within `ANSWER_SECONDS` that they are there; empty where nobody can tell.

    Where the store itself is gone, it was in the process of rank 0.
    """
    ends = time.monotonic() + ANSWER_SECONDS
    try:
        store.set(f"acf/here/{rank}", "1")
        return [other for other in range(count) if other != rank and not _answers(store, other, ends)]
    except RuntimeError:
        return [0] if rank else []


def _answers(store: Any, rank: int, ends: float) -> bool:
    try:
        store.wait([f"acf/here/{rank}"], timedelta(seconds=max(0.1, ends - time.monotonic())))
    except RuntimeError:
        return bool(store.check([f"acf/here/{rank}"]))  # raises where the store is gone, not the rank
    return True


def _named(ranks: list[int]) -> str:
    if not ranks:
        return "its connection to another rank, which was killed or could not be reached"
    words = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
    return f"{words}, which {'was' if len(ranks) == 1 else 'were'} killed or could not be reached"
