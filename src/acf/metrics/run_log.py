"""The log of a training run: written while it trains, so that `acf watch` can show it and a crash loses nothing.

``FOLDER/log.jsonl`` has one JSON object per line and is only ever appended to. ``kind`` is one of `KINDS`:

- start: a process begins, or goes on from a checkpoint. ``total_steps``, ``energy_source``, and ``masks``: for every
  block-sparse layer the ``shape`` of its grid of blocks and the ``bits`` of its mask, packed row by row.
- step: ``step``, ``seconds`` and ``joules`` since the start, ``loss``, and whatever else was measured.
- move: ``step``, ``layers`` (their figures), and ``flips``: the bits of each mask that changed since the last one.
- end: ``outcome`` "finished", "failed" or "interrupted", and the ``error``.

Bits are compressed (zlib) and written in base64. The writer holds a lock on the file, so a reader knows whether the
process still lives.
"""

import json
import os
import sys
import time
import warnings
from base64 import b64encode
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from zlib import compress

import numpy as np
from numpy.typing import NDArray

from acf.errors import FileError
from acf.files import check_inside, kept_inside
from acf.locks import try_lock
from acf.metrics.meters import EnergyMeter

if TYPE_CHECKING:
    from torch import Tensor, nn

    from acf.train import GradientFigures, LayerFigures

LOG_FILE = "log.jsonl"
KINDS = ("start", "step", "move", "end")


class RunLogWarning(UserWarning):
    """The log cannot be written any more; training goes on without it."""


class RunLog:
    """Writes what a run does to ``folder``, for ``acf watch folder``; an ``on_move`` for `acf.attach`.

    Call `step` after every optimizer step; the loss is read, which waits for the device, at every ``every``-th only.
    ``model``: its block-sparse layers' masks are kept too. ``total_steps`` gives the remaining time. Use it as a
    context manager, so that the end of the run, or its error, is written as well. A folder that holds a log is gone on
    with: a run that resumes from an earlier step takes the place of what it repeats. Under ``torch.distributed`` only
    rank 0 writes.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with RunLog(folder, total_steps=2, every=1) as log:
    ...     log.step(1, 0.7)
    ...     log.step(2, 0.5, accuracy=0.9)
    """

    def __init__(
        self,
        folder: str | Path,
        model: "nn.Module | None" = None,
        total_steps: int | None = None,
        every: int = 10,
        device: str | None = None,
    ) -> None:
        if every < 1:
            raise FileError(f"every {every} is below 1; record at every step, 1, or more rarely")
        self.path = Path(folder) / LOG_FILE
        self.total_steps, self.every = total_steps, every
        self._file = -1
        self._masks: dict[str, NDArray[np.uint8]] = {}
        if not _is_first_rank():
            return
        self._read_masks = _mask_reader(model)
        self._file = _open_locked(self.path)
        self._started = time.perf_counter()
        self._meter = EnergyMeter(device or _device_of(model), idle_seconds=0.0).__enter__()
        masks = self._read_masks()
        self._masks = {name: np.packbits(mask) for name, mask in masks.items()}
        described = {name: {"shape": mask.shape, "bits": _text(self._masks[name])} for name, mask in masks.items()}
        self._write("start", total_steps=total_steps, energy_source=self._meter.source, masks=described)

    def step(self, step: int, loss: "Tensor | float | None" = None, **measured: float) -> None:
        """Record optimizer step number ``step``, counted from 1; steps with ``measured`` values are always recorded."""
        due = step % self.every == 0 or step in (1, self.total_steps) or bool(measured)
        if due and self._file >= 0:
            # float() would warn of a loss that has a gradient.
            value = loss if loss is None or isinstance(loss, float | int) else loss.item()
            self._write("step", step=step, **self._spent(), loss=value, **measured)

    def __call__(self, step: int, figures: "Sequence[LayerFigures | GradientFigures]") -> None:
        """Record the figures of all layers after ``step``, and their masks."""
        if self._file < 0:
            return
        layers = {each.layer: {k: v for k, v in vars(each).items() if k not in ("step", "layer")} for each in figures}
        flips = {}
        for name, mask in self._read_masks().items():
            bits = np.packbits(mask)
            flips[name] = _text(bits ^ self._masks[name])
            self._masks[name] = bits
        self._write("move", step=step, **self._spent(), layers=layers, flips=flips)

    def close(self, outcome: str = "finished", error: str = "") -> None:
        """Write how the run ended and let go of the file; a second call does nothing."""
        if self._file >= 0:
            self._write("end", **self._spent(), outcome=outcome, error=error)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, KeyboardInterrupt):
            self.close("interrupted")
        else:
            self.close("failed", f"{kind.__name__}: {error}".splitlines()[0][:500])

    def _spent(self) -> dict[str, float | None]:
        return {"seconds": time.perf_counter() - self._started, "joules": self._meter.joules_so_far()}

    def _write(self, kind: str, **values: Any) -> None:
        """Append one line with one system call, so that a process that is killed leaves whole lines."""
        record = {"kind": kind, "time": time.time()} | _finite(values)
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            os.close(self._file)
            self._file = -1
            warnings.warn(f"{self.path} cannot be written any more ({error}); no more is logged", RunLogWarning, 3)


def _finite(value: Any) -> Any:
    """Plain values with None for a float that JSON cannot write: the loss of a run that has diverged."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def _text(bits: NDArray[np.uint8]) -> str:
    return b64encode(compress(bits.tobytes())).decode()


def _is_first_rank() -> bool:
    """Whether this process is the only one, or rank 0; torch is not imported for it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return True
    return bool(distributed.get_rank() == 0)


def _mask_reader(model: "nn.Module | None") -> Callable[[], dict[str, NDArray[np.bool_]]]:
    if model is None:
        return dict
    from acf.nn import block_sparse_layers
    from acf.train.distributed import unwrapped

    layers = block_sparse_layers(unwrapped(model))
    return lambda: {name: layer.mask().cpu().numpy() for name, layer in layers.items()}


def _device_of(model: "nn.Module | None") -> str:
    parameter = None if model is None else next(model.parameters(), None)
    return "cpu" if parameter is None else str(parameter.device)


def _open_locked(path: Path) -> int:
    """The log, opened for appending and locked; it starts on a new line, whatever a crash has left."""
    with kept_inside(path.parent):
        check_inside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror}); pass a folder you may write to") from error
    if not try_lock(file, exclusive=True):
        os.close(file)
        raise FileError(f"{path} is being written by another process; pass a folder of its own to every run")
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")
    return file
