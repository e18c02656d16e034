"""One fuzzed case: a seeded input to one door of the package, and whether what came of it is allowed."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from acf.errors import AcfError

Door = Callable[[Random, Path], object]
"""Makes one input from the random numbers, in the folder, and gives it to the package."""

MOST_SECONDS = 10
"""Of processor time: what else the machine does must not decide."""

MOST_BYTES = 1 << 30


class LongWork(BaseException):
    """An input was accepted and its work goes on for longer than a case may take: allowed where a door says so.

    Not an Exception, so that no handler of the package takes it for an error of the input.
    """


class _TooSlowError(BaseException):
    """Like `LongWork`, where it is not allowed."""


@dataclass(frozen=True)
class Finding:
    """A case whose outcome is not allowed: anything but success or an `AcfError` of one line, in time and memory."""

    door: str
    seed: int
    what: str

    def __str__(self) -> str:
        return f"{self.door} {self.seed}: {self.what}"


def run_case(name: str, door: Door, seed: int, folder: Path) -> Finding | None:
    """Play one case inside ``folder``; None where its outcome is allowed. Nothing beside the folder may change."""
    neighbours = sorted(os.listdir(folder.parent))
    before = _reset_peak()
    what = _outcome(door, Random(f"{name} {seed}"), folder)
    grown = _status_bytes("VmHWM") - before
    if not what and grown > MOST_BYTES:
        what = f"took {grown >> 20} MiB"
    if not what and sorted(os.listdir(folder.parent)) != neighbours:
        what = f"wrote outside its folder: {sorted(set(os.listdir(folder.parent)) ^ set(neighbours))}"
    return Finding(name, seed, what) if what else None


def _outcome(door: Door, rng: Random, folder: Path) -> str:
    """What is not allowed about the case; "" where all is well."""
    try:
        with chdir(folder), stopped_after(MOST_SECONDS, _TooSlowError):
            door(rng, folder)
    except AcfError as error:
        message = str(error)
        return f"the error is not one line: {message!r}" if len(message.strip().splitlines()) != 1 else ""
    except LongWork:
        return ""
    except _TooSlowError:
        return f"takes more than {MOST_SECONDS} s"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:300]!r} at {last.filename}:{last.lineno} {last.line}"
    return ""


@contextmanager
def stopped_after(seconds: float, error: type[BaseException], wall: bool = False) -> Iterator[None]:
    """Raise ``error`` once the block has used so much processor or ``wall`` time; an outer limit goes on after."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise error

    kind, timer = (signal.SIGALRM, signal.ITIMER_REAL) if wall else (signal.SIGPROF, signal.ITIMER_PROF)
    handler = signal.signal(kind, ring)
    left, _ = signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, left)
        signal.signal(kind, handler)


def _reset_peak() -> int:
    """The resident bytes now, which the peak starts from again."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))
