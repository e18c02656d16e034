"""Reading the log of a run, while it is written or long after: curves, masks, and how the run stands."""

import json
import os
import zlib
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any
from zlib import decompress

import numpy as np
from numpy.typing import NDArray

from acf.errors import FileError
from acf.locks import try_lock
from acf.metrics.run_log import LOG_FILE
from acf.schema import read_value

MOST_MOVES = 200
"""Moves whose masks are kept; beyond, every second one is forgotten."""

RECENT = 20
"""Recorded steps over which the time of a step is averaged."""

RESERVED = ("kind", "time", "step", "seconds", "joules", "loss")
"""Keys of a step that are no other measurement."""


@dataclass(frozen=True)
class StepPoint:
    """One recorded step; ``seconds`` and ``joules`` count from the start of the run, over all its processes."""

    step: int
    seconds: float
    loss: float | None
    joules: float | None
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MovePoint:
    """The topology after one move: figures by layer, and masks bool ``[grid_rows, grid_cols]`` by layer.

    ``sparsity`` is the share of blocks that are absent, ``flip_rate`` that of present blocks that have just moved.
    """

    step: int
    figures: dict[str, dict[str, float]]
    masks: dict[str, NDArray[np.bool_]]

    @property
    def sparsity(self) -> float | None:
        """Over all layers, by blocks; None where nothing is known."""
        blocks = sum(mask.size for mask in self.masks.values())
        if blocks:
            return 1.0 - sum(int(mask.sum()) for mask in self.masks.values()) / blocks
        densities = [each["density"] for each in self.figures.values() if "density" in each]
        return 1.0 - sum(densities) / len(densities) if densities else None

    @property
    def flip_rate(self) -> float | None:
        """Over all layers, by present blocks; None where nothing has moved yet."""
        rates = {name: each["flip_rate"] for name, each in self.figures.items() if "flip_rate" in each}
        if not rates:
            return None
        present = {name: int(self.masks[name].sum()) if name in self.masks else 1 for name in rates}
        total = sum(present.values())
        return sum(rate * present[name] for name, rate in rates.items()) / total if total else 0.0


@dataclass
class RunHistory:
    """All that the log says. ``outcome`` is "" until the run says how it ended; ``is_written``: a process writes."""

    name: str
    total_steps: int | None = None
    energy_source: str = ""
    steps: list[StepPoint] = field(default_factory=list)
    moves: list[MovePoint] = field(default_factory=list)
    outcome: str = ""
    error: str = ""
    last_time: float = 0.0
    is_written: bool = False
    sessions: int = 0
    damaged_lines: int = 0

    @property
    def step(self) -> int:
        """The last step that was recorded."""
        return max(self.steps[-1].step if self.steps else 0, self.moves[-1].step if self.moves else 0)

    @property
    def state(self) -> str:
        """In words: running, finished, failed (with the error), interrupted, or ended without a word."""
        if self.is_written and not self.outcome:
            return "running"
        if self.outcome == "failed":
            return f"failed at step {self.step}: {self.error}"
        if self.outcome == "interrupted":
            return f"interrupted at step {self.step}"
        if self.outcome == "finished" or (self.total_steps and self.step >= self.total_steps):
            return "finished"
        return f"ended without a word after step {self.step}: it crashed or was killed"

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step, over the last recorded ones."""
        recent = self.steps[-RECENT:]
        if len(recent) < 2 or recent[-1].step == recent[0].step:
            return None
        return (recent[-1].seconds - recent[0].seconds) / (recent[-1].step - recent[0].step)

    @property
    def remaining_seconds(self) -> float | None:
        """Until the last step; None where the length or the pace is not known, or nothing runs."""
        if self.total_steps is None or self.step_seconds is None or self.state != "running":
            return None
        return max(0, self.total_steps - self.step) * self.step_seconds

    def to_dict(self) -> dict[str, Any]:
        """The present figures as plain values; None where one is unknown or not finite."""
        last = self.steps[-1] if self.steps else None
        move = self.moves[-1] if self.moves else None
        values = {
            "run": self.name,
            "state": self.state,
            "step": self.step,
            "total_steps": self.total_steps,
            "loss": last.loss if last else None,
            "step_ms": None if self.step_seconds is None else 1e3 * self.step_seconds,
            "seconds": last.seconds if last else None,
            "remaining_seconds": self.remaining_seconds,
            "joules": last.joules if last else None,
            "energy_source": self.energy_source,
            "sparsity": move.sparsity if move else None,
            "flip_rate": move.flip_rate if move else None,
            "measured": _latest(self.steps),
        }
        return {
            name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()
        }


def _latest(steps: Iterable[StepPoint]) -> dict[str, float]:
    values: dict[str, float] = {}
    for point in steps:
        values.update(point.measured)
    return values


class RunReader:
    """Follows the log in ``folder``: `update` reads what was added and returns the history so far."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / LOG_FILE
        self.history = RunHistory(Path(folder).resolve().name)
        self._offset = 0
        self._bits: dict[str, tuple[tuple[int, int], NDArray[np.uint8]]] = {}
        self._base = (0.0, 0.0)
        self._is_first = True

    def update(self) -> RunHistory:
        """Read every complete line that is new."""
        try:
            file = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise FileError(
                f"{self.path} cannot be read ({error.strerror}); pass the folder that a training run gave to acf.RunLog"
            ) from error
        try:
            alive = not try_lock(file, exclusive=False)  # asked first: what is written before the end is read below
            added = _read_from(file, self._offset)
        finally:
            os.close(file)
        complete = added[: added.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            self._add_line(line)
        self.history.is_written = alive
        return self.history

    def _add_line(self, line: bytes) -> None:
        """Add one record; a line that a crash has cut, or of a later version, is counted and left out."""
        if not line.strip():
            return
        try:
            record = json.loads(line)
            _READERS[record["kind"]](self, record)
            self.history.last_time = float(record["time"])
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
            self.history.damaged_lines += 1

    def _start(self, record: dict[str, Any]) -> None:
        history = self.history
        history.total_steps, history.energy_source = record["total_steps"], record["energy_source"]
        history.outcome = history.error = ""
        history.sessions += 1
        self._is_first = True
        self._bits = {}
        for name, mask in record["masks"].items():
            rows, cols = mask["shape"]
            self._bits[name] = ((rows, cols), _bits(mask["bits"]))

    def _step(self, record: dict[str, Any]) -> None:
        self._go_on_from(record["step"])
        known = {name: value for name, value in record.items() if name not in RESERVED and value is not None}
        measured = read_value(dict[str, float], known, "measured")
        joules = read_value(float | None, record["joules"], "joules")
        loss = read_value(float | None, record["loss"], "loss")
        seconds = read_value(float, record["seconds"], "seconds") + self._base[0]
        joules = None if joules is None else joules + self._base[1]
        self.history.steps.append(StepPoint(record["step"], seconds, loss, joules, measured))

    def _move(self, record: dict[str, Any]) -> None:
        self._go_on_from(record["step"])
        for name, text in record["flips"].items():
            shape, bits = self._bits[name]
            self._bits[name] = shape, bits ^ _bits(text)
        layers = {
            layer: {name: value for name, value in figures.items() if value is not None}
            for layer, figures in record["layers"].items()
        }
        self._add_move(record["step"], read_value(dict[str, dict[str, float]], layers, "layers"))

    def _add_move(self, step: int, figures: dict[str, dict[str, float]]) -> None:
        masks = {
            name: np.unpackbits(bits, count=shape[0] * shape[1]).astype(bool).reshape(shape)
            for name, (shape, bits) in self._bits.items()
        }
        moves = self.history.moves
        moves.append(MovePoint(step, figures, masks))
        if len(moves) > MOST_MOVES:
            del moves[1:-1:2]

    def _end(self, record: dict[str, Any]) -> None:
        self.history.outcome, self.history.error = record["outcome"], record["error"]

    def _go_on_from(self, step: int) -> None:
        """At a process's first record: what it repeats is forgotten, and its clock goes on where the kept steps end."""
        read_value(int, step, "step")
        if not self._is_first:
            return
        self._is_first = False
        history = self.history
        del history.steps[bisect_left(history.steps, step, key=lambda point: point.step) :]
        del history.moves[bisect_left(history.moves, step, key=lambda point: point.step) :]
        last = history.steps[-1] if history.steps else None
        self._base = (last.seconds, last.joules or 0.0) if last else (0.0, 0.0)
        if not history.moves:
            self._add_move(max(0, step - 1), {})


_READERS = {"start": RunReader._start, "step": RunReader._step, "move": RunReader._move, "end": RunReader._end}
"""What each kind of line adds."""


def _read_from(file: int, offset: int) -> bytes:
    os.lseek(file, offset, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as stream:
        return stream.read()


def _bits(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(decompress(b64decode(text)), dtype=np.uint8)
