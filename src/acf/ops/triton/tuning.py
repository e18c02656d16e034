"""Choosing a kernel's launch configuration once per machine and shape, and remembering it on disk."""

import json
import os
import re
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path

import torch
import triton
from torch import Tensor

from acf.errors import AcfError, FileError
from acf.files import cache_directory, write_whole
from acf.ops.autotune import may_tune

FORMAT_VERSION = 4
"""Raised when the kernels change so much that remembered choices no longer fit."""

TIMED_RUNS = 5

CLOSE = 1.1
"""Configurations within this factor of the fastest are timed again, in turns."""

TURNS = 3

COMPILERS = 8
"""Candidates compiled at the same time, where the machine has as many cores."""

UNFIT = (triton.runtime.errors.OutOfResources, triton.compiler.errors.CompilationError, RuntimeError)
"""What a launch raises that the device lacks the resources for."""

HEAD_START_CYCLES = 1_000_000
"""About half a millisecond for which the device sleeps while the host enqueues the launch to be timed. Without it the
measured time of a short kernel is the host's launch time."""


@dataclass(frozen=True)
class LaunchConfig:
    """How one kernel is launched; fields a kernel does not have stay at their defaults.

    ``kernel`` names the variant, ``tile`` the tokens of an output tile, ``depth`` the extent of one step of the
    summed dimension, ``pack`` the blocks per step or program, ``swap`` which operand lies on the matrix unit's wide
    dimension, ``splits`` the parts of the token dimension, ``by_input`` whether blocks are grouped by column.
    """

    kernel: str
    tile: int = 128
    depth: int = 64
    pack: int = 1
    swap: bool = False
    splits: int = 1
    by_input: bool = True
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class ProblemKey:
    """What a choice depends on. Density and tokens fall into buckets, so moving blocks never tunes again."""

    op: str
    rows: int
    cols: int
    block: int
    dtype: str
    precision: str
    density_bucket: int
    token_bucket: int
    detail: str = ""

    @property
    def text(self) -> str:
        """The key as it stands in the file."""
        return "/".join(str(value) for value in asdict(self).values())


Launch = Callable[[LaunchConfig], object]


def density_bucket(blocks: int, grid_rows: int, grid_cols: int) -> int:
    """Half powers of two of the density: 50 % is 2, 25 % is 4, 10 % is 7.

    >>> density_bucket(10, 10, 10)
    7
    """
    return round(-2 * log2(max(blocks, 1) / (grid_rows * grid_cols)))


def token_bucket(tokens: int) -> int:
    """The power of two nearest to a token count, as its exponent."""
    return round(log2(max(tokens, 1)))


class Tuner:
    """Remembers the fastest configuration of each problem, in memory and in one JSON file per device."""

    def __init__(self) -> None:
        self._chosen: dict[Hashable, LaunchConfig] = {}
        self._stored: dict[str, dict[str, object]] | None = None

    def choose(
        self,
        signature: Hashable,
        describe: Callable[[], ProblemKey],
        candidates: Sequence[LaunchConfig],
        launch: Launch,
    ) -> LaunchConfig:
        """The remembered configuration of a problem, or the fastest of ``candidates`` under ``launch``.

        ``signature`` is what a call can tell of its problem at no cost; ``describe`` gives the key under which the
        choice is kept, and is called once per signature. Where nothing can or shall be timed (`may_tune`), an
        unknown problem takes the first candidate.
        """
        config = self._chosen.get(signature)
        if config is not None:
            return config
        key = describe()
        config = self._load(key) if torch.cuda.is_available() else None
        if config is None or config not in candidates:
            if not may_tune():
                return candidates[0]
            config = self._fastest(candidates, launch)
            self._store(key, config)
        self._chosen[signature] = config
        return config

    def remembers(self, signature: Hashable) -> bool:
        """Whether the choice for ``signature`` is made, and not a stand-in for one that could not be timed."""
        return signature in self._chosen

    def _fastest(self, candidates: Sequence[LaunchConfig], launch: Launch) -> LaunchConfig:
        compile_together(candidates, launch)
        times = [time_launch(config, launch) for config in candidates]
        best = min(times)
        if best == float("inf"):
            raise AcfError(
                f"none of {len(candidates)} launch configurations runs on {torch.cuda.get_device_name()}; "
                "free memory on the device, or use a smaller block"
            )
        close = [config for config, time in zip(candidates, times, strict=True) if time <= CLOSE * best]
        return close[0] if len(close) == 1 else _fastest_in_turns(close, launch)

    def _load(self, key: ProblemKey) -> LaunchConfig | None:
        if self._stored is None:
            self._stored = _read(_cache_file())
        fields = self._stored.get(key.text)
        try:
            return LaunchConfig(**fields) if fields else None  # type: ignore[arg-type]
        except TypeError:  # written by another version
            return None

    def _store(self, key: ProblemKey, config: LaunchConfig) -> None:
        # Read again before writing: another process may have added its own choices meanwhile.
        stored = _read(_cache_file())
        stored[key.text] = asdict(config)
        self._stored = stored
        _write(_cache_file(), stored)


def _fastest_in_turns(candidates: Sequence[LaunchConfig], launch: Launch) -> LaunchConfig:
    """The fastest of configurations so close that the device's clock, which falls as it heats, might have decided."""
    times: dict[LaunchConfig, list[float]] = {config: [] for config in candidates}
    for _ in range(TURNS):
        for config in candidates:
            times[config].append(time_launch(config, launch))
    return min(candidates, key=lambda config: sorted(times[config])[TURNS // 2])


def compile_together(candidates: Sequence[LaunchConfig], launch: Launch) -> None:
    """Launch every candidate once, each in a thread: nearly all of that is compilation, which leaves Python's lock.

    A thread starts with gradients on and on the default device and stream, so it takes over the caller's.
    """
    stream = torch.cuda.current_stream()

    def launch_first(config: LaunchConfig) -> None:
        with suppress(*UNFIT), torch.no_grad(), torch.cuda.stream(stream):  # time_launch meets the error again
            launch(config)

    with ThreadPoolExecutor(min(len(candidates), COMPILERS, os.cpu_count() or 1)) as threads:
        list(threads.map(launch_first, candidates))


def time_launch(config: LaunchConfig, launch: Launch) -> float:
    """Median milliseconds of ``launch(config)``; infinite where the device lacks the resources for it."""
    try:
        launch(config)
        torch.cuda.synchronize()
    except UNFIT:
        return float("inf")
    times: list[float] = []
    flush = _flush_buffer()
    for _ in range(TIMED_RUNS):
        flush.zero_()
        torch.cuda._sleep(HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
        begin, end = _event(), _event()
        begin.record()
        launch(config)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _flush_buffer() -> Tensor:
    """Memory larger than the L2 cache; writing it leaves nothing of the operands there."""
    return torch.empty(1 << 27, dtype=torch.int8, device="cuda")


def _cache_file() -> Path:
    device = re.sub(r"[^A-Za-z0-9]+", "-", torch.cuda.get_device_name())
    return cache_directory() / f"tuning-{device}.json"


def _read(path: Path) -> dict[str, dict[str, object]]:
    """The stored choices; a missing, broken or outdated file counts as empty."""
    try:
        content = json.loads(path.read_text())
        if content["version"] == FORMAT_VERSION:
            return dict(content["choices"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {}


def _write(path: Path, choices: dict[str, dict[str, object]]) -> None:
    """Replace the file in one move; where that is not possible the choices live as long as the process."""
    with suppress(FileError):
        write_whole(path, json.dumps({"version": FORMAT_VERSION, "choices": choices}, indent=1).encode())


TUNER = Tuner()
