"""Worker processes that end when the process that started them does."""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait

ORPHANED = 1
"""Exit code of a worker whose parent is gone."""


def end_with_parent() -> None:
    """End this worker process, whatever it does, as soon as its parent has ended: also when that was killed.

    A worker of `multiprocessing` otherwise waits for its next task for ever. Call it in the worker, as the initializer
    of a pool or in one.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True, name="end-with-parent").start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(ORPHANED)
