"""CIFAR-10 in its two public layouts: ``cifar-10-batches-bin`` and ``cifar-10-batches-py``."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from acf.errors import DataError
from acf.zoo.data.labelled_data import LabelledData

_FILES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_SIZE = 3 * 32 * 32
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
"""All that the published pickles name."""


def read_cifar10_batches(folder: Path, split: str) -> LabelledData:
    """Read ``cifar-10-batches-bin/`` or ``cifar-10-batches-py/`` in ``folder``."""
    binary, pickled = (folder / f"cifar-10-batches-{kind}" for kind in ("bin", "py"))
    if binary.is_dir():
        parts = [_read_binary(binary / f"{name}.bin") for name in _FILES[split]]
    elif pickled.is_dir():
        parts = [_read_pickle(pickled / name) for name in _FILES[split]]
    else:
        raise FileNotFoundError(f"neither {binary.name} nor {pickled.name} is in it")
    rows = np.concatenate(parts)
    images = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy())
    return LabelledData("CIFAR-10", images, torch.tensor(rows[:, 0], dtype=torch.int64))


def _read_binary(path: Path) -> NDArray[np.uint8]:
    """Rows of a label and 3,072 pixels."""
    return np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 1 + _SIZE)


def _read_pickle(path: Path) -> NDArray[np.uint8]:
    stored = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    labels = np.array(stored[b"labels"], dtype=np.uint8)[:, None]
    return np.concatenate([labels, np.asarray(stored[b"data"], dtype=np.uint8)], axis=1)


class _Unpickler(pickle.Unpickler):
    """Reads arrays and plain values; a file that names anything else is refused, because it could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"the batch file names {module}.{name}, which CIFAR-10 does not; download it again")
        return super().find_class(module, name)
