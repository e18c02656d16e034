"""A command in a fork of this process, which has imported everything and runs no thread; it may be killed."""

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch._dynamo  # noqa: F401  # which every optimizer imports

from tests.faults.disk import Fault, arm, changes

KILLED = -signal.SIGKILL
MOST_SECONDS = 300.0


@dataclass(frozen=True)
class Ended:
    """How a child ended: ``code`` as `subprocess` has it, what it said, its wall time, its changes of files."""

    code: int
    errors: str
    seconds: float
    changes: int = 0


def run_child(
    work: Callable[[], None], folder: Path, at: int = 0, fault: Fault = Fault.NONE, kill_after_s: float | None = None
) -> Ended:
    """Run ``work`` in ``folder``, with a fault at a change of its files or a kill after some seconds."""
    told, count = folder.parent / f"{folder.name}.errors", folder.parent / f"{folder.name}.changes"
    folder.mkdir(parents=True, exist_ok=True)
    told.write_text("")
    count.unlink(missing_ok=True)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(work, folder, told, count, (at, fault))
    status = _wait(child, started + MOST_SECONDS if kill_after_s is None else started + kill_after_s)
    made = int(count.read_text()) if count.exists() else 0
    return Ended(os.waitstatus_to_exitcode(status), told.read_text(), time.monotonic() - started, made)


def _wait(child: int, kill_at: float) -> int:
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        left = kill_at - time.monotonic()
        if left <= 0:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(min(left, 0.005))


def _be_child(work: Callable[[], None], folder: Path, told: Path, count: Path, fault: tuple[int, Fault]) -> None:
    """Never returns."""
    code = 1
    try:
        output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(output, 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        os.chdir(folder)
        warnings.simplefilter("default")
        arm(folder, *fault)
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        made = changes()
        arm(folder, 0, Fault.NONE)
        sys.stderr.flush()
        count.write_text(str(made))
        os._exit(code)
