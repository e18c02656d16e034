"""Fashion-MNIST (Xiao et al., 2017): 60,000 + 10,000 grey images of 28 x 28 in ten classes, IDX files."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from acf.zoo.data.compressed import unpacked
from acf.zoo.data.labelled_data import LabelledData

_LAYOUTS = ("fashion-mnist", "FashionMNIST/raw")
_PREFIXES = {"train": "train", "test": "t10k"}


def read_fashion_mnist(folder: Path, split: str) -> LabelledData:
    """Read ``fashion-mnist/``, or ``FashionMNIST/raw/`` as torchvision has it, in ``folder``; packed or unpacked."""
    images, labels = (
        _read_idx(_find(folder, f"{_PREFIXES[split]}-{part}-ubyte")) for part in ("images-idx3", "labels-idx1")
    )
    return LabelledData("Fashion-MNIST", torch.tensor(images)[:, None], torch.tensor(labels, dtype=torch.int64))


def _find(folder: Path, name: str) -> Path:
    """The file ``name`` or ``name.gz`` in the first layout that has it; else where it is usually found."""
    places = [folder / layout / f"{name}{suffix}" for layout in _LAYOUTS for suffix in (".gz", "")]
    return next((place for place in places if place.is_file()), places[0])


def _read_idx(path: Path) -> NDArray[np.uint8]:
    content = unpacked(path)
    values = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:values], dtype=">u4")
    return np.frombuffer(content[values:], np.uint8).reshape(shape.astype(np.int64))
