"""One fuzzed case: a seeded input to one door of the package, and whether what came of it is allowed."""

import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@dataclass(frozen=True)
class Finding:
    """A case whose outcome is not allowed: anything but success or an `AcfError` of one line, in time and memory."""

    door: str
    seed: int
    what: str

    def __str__(self) -> str:
        return f"{self.door} {self.seed}: {self.what}"


def run_case(name: str, door: Door, seed: int, folder: Path) -> Finding | None:
    """Play one case; None where its outcome is allowed."""
    before = _peak_bytes()
    try:
        with _alarm(MOST_SECONDS):
            door(Random(f"{name} {seed}"), folder)
    except AcfError as error:
        message = str(error)
        if "\n" in message.strip() or not message.strip():
            return Finding(name, seed, f"the error is not one line: {message!r}")
    except _TooSlowError:
        return Finding(name, seed, f"takes more than {MOST_SECONDS} s")
    except Exception:
        last = traceback.format_exc().strip().splitlines()
        return Finding(name, seed, f"{last[-1]} at {last[-3].strip() if len(last) > 2 else ''}")
    grown = _peak_bytes() - before
    return Finding(name, seed, f"took {grown >> 20} MiB") if grown > MOST_BYTES else None


class _TooSlowError(BaseException):
    """Not an Exception, so that no handler of the package takes it for an error of the input."""


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
