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
    try:
        stored = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        labels, pixels = np.array(stored[b"labels"], dtype=np.uint8), stored[b"data"].pixels()
    except DataError:
        raise
    except Exception as error:  # a damaged file fails in many ways
        raise DataError(f"{path.name} is no batch of CIFAR-10 ({error}); download it again") from error
    return np.concatenate([labels[:, None], pixels.reshape(len(labels), _SIZE)], axis=1)


class _Pixels:
    """Takes the state of a pickled array without making an array of it."""

    def __init__(self, *arguments: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        """The bytes of the array."""
        content = self.state[-1]
        return np.frombuffer(content.encode("latin1") if isinstance(content, str) else content, np.uint8)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"encoding {encoding!r} is not latin1")
    return text.encode("latin1")


_NAMED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Pixels,
    ("numpy._core.multiarray", "_reconstruct"): _Pixels,
    ("numpy", "ndarray"): _Pixels,
    ("numpy", "dtype"): _Pixels,
    ("_codecs", "encode"): _encode,
}
"""All that the published pickles name, and what stands for it here: nothing of theirs is called."""


class _Unpickler(pickle.Unpickler):
    """Reads plain values and the bytes of arrays; a file that names anything else is refused: it could run code."""

    def find_class(self, module: str, name: str) -> Any:
        module, name = (each.decode() if isinstance(each, bytes) else each for each in (module, name))
        if (module, name) not in _NAMED:
            raise DataError(f"the batch file names {module}.{name}, which CIFAR-10 does not; download it again")
        return _NAMED[module, name]
