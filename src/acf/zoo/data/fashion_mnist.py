"""Fashion-MNIST (Xiao et al., 2017): 60,000 + 10,000 grey images of 28 x 28 in ten classes, IDX files."""

import gzip
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from acf.zoo.data.labelled_data import LabelledData

_PREFIXES = {"train": "train", "test": "t10k"}


def read_fashion_mnist(folder: Path, split: str) -> LabelledData:
    """Read ``fashion-mnist/`` in ``folder``."""
    images, labels = (
        _read_idx(folder / "fashion-mnist" / f"{_PREFIXES[split]}-{part}-ubyte.gz")
        for part in ("images-idx3", "labels-idx1")
    )
    return LabelledData("Fashion-MNIST", torch.tensor(images)[:, None], torch.tensor(labels, dtype=torch.int64))


def _read_idx(path: Path) -> NDArray[np.uint8]:
    with gzip.open(path) as file:
        axes = file.read(4)[3]
        shape = np.frombuffer(file.read(4 * axes), dtype=">u4")
        return np.frombuffer(file.read(), np.uint8).reshape(shape.astype(np.int64))
