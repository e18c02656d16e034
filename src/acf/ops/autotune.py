"""Whether kernels may be tuned: on the first call of a problem, candidates are timed and the fastest is kept."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Paused:
    """One state for the whole process: autograd runs backward passes in threads of its own."""

    depth = 0


@contextmanager
def untuned() -> Iterator[None]:
    """Within it unknown problems take the first candidate: for a step that runs once, tuning never pays."""
    _Paused.depth += 1
    try:
        yield
    finally:
        _Paused.depth -= 1


def may_tune() -> bool:
    """Not within `untuned`, not with ``ACF_AUTOTUNE=0``, and not while a CUDA graph is being captured."""
    allowed = _Paused.depth == 0 and os.environ.get("ACF_AUTOTUNE", "1") != "0"
    return allowed and torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing()
