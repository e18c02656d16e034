"""Real training data from a folder, or the digits that come with scikit-learn."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from acf.errors import DataError, MissingDependencyError
from acf.zoo.data.digits import load_digits
from acf.zoo.data.words import read_sentences, sentence_classes, word_occurrences


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Examples ``inputs [n, ...]`` and ``labels [n]``; ``name`` is how results must cite the set.

    Images are uint8 ``[n, channels, h, w]``, sentences and pairs are integers; ``padded`` sentences end in zeros.
    Labels are class numbers, or floats of 0 and 1 where one score is compared with them.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    padded: bool = False

    def batch(self, indices: Tensor, image_size: int, device: str) -> tuple[Tensor, Tensor]:
        """The examples at ``indices``: sentences cut to the longest of them, images as three channels in [-2, 2].

        Images are bilinearly resized to ``image_size`` x ``image_size``.
        """
        inputs, labels = self.inputs[indices].to(device), self.labels[indices].to(device)
        if self.padded:
            inputs = inputs[:, : int((inputs != 0).sum(dim=1).max())]
        if inputs.dim() < 4:
            return inputs, labels
        images = (inputs.float() / 255 - 0.5) * 4
        images = F.interpolate(images, (image_size, image_size), mode="bilinear")
        return images.expand(-1, 3, -1, -1), labels


def _digits(folder: Path) -> TrainingData:
    digits = load_digits()
    images = ((digits.train_images + 1) * 127.5).round().to(torch.uint8)
    return TrainingData("scikit-learn digits", images, digits.train_labels)


def _fashion_mnist(folder: Path, split: str = "train") -> TrainingData:
    prefix = {"train": "train", "test": "t10k"}[split]
    images, labels = (
        _read_idx(folder / "fashion-mnist" / f"{prefix}-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1")
    )
    return TrainingData("Fashion-MNIST", torch.tensor(images)[:, None], torch.tensor(labels, dtype=torch.int64))


def _read_idx(path: Path) -> NDArray[np.uint8]:
    with gzip.open(path) as file:
        axes = file.read(4)[3]
        shape = np.frombuffer(file.read(4 * axes), dtype=">u4")
        return np.frombuffer(file.read(), np.uint8).reshape(shape.astype(np.int64))


def _cifar10(folder: Path, split: str = "train") -> TrainingData:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError(
            "Pillow is not installed and cifar10-jpeg needs it; install it with: pip install 'acf[data]'"
        ) from error
    with np.load(folder / "cifar10-jpeg" / "cifar10_jpeg.npz") as stored:
        header, scans = stored["jpeg_header"].tobytes(), stored[f"{split}_scans"].tobytes()
        offsets, labels = stored[f"{split}_offsets"], stored[f"{split}_labels"]
    pixels = np.stack(
        [np.asarray(Image.open(io.BytesIO(header + scans[start:end]))) for start, end in pairwise(offsets)]
    )
    images = torch.tensor(pixels).permute(0, 3, 1, 2)
    return TrainingData("CIFAR-10 (JPEG quality 80, 4:4:4)", images, torch.tensor(labels, dtype=torch.int64))


def _sentence_polarity(folder: Path) -> TrainingData:
    return TrainingData("sentence polarity", *sentence_classes(read_sentences(folder)), padded=True)


def _word_occurrences(folder: Path) -> TrainingData:
    name = "word occurrences in sentence polarity (no ratings)"
    return TrainingData(name, *word_occurrences(read_sentences(folder)))


DATA_SETS: dict[str, Callable[[Path], TrainingData]] = {
    "digits": _digits,
    "fashion-mnist": _fashion_mnist,
    "cifar10-jpeg": _cifar10,
    "sentence-polarity": _sentence_polarity,
    "word-occurrences": _word_occurrences,
}
"""Readers by name; each takes the folder that holds the data sets."""

TEST_SETS: dict[str, Callable[[Path], TrainingData]] = {
    "fashion-mnist": partial(_fashion_mnist, split="test"),
    "cifar10-jpeg": partial(_cifar10, split="test"),
}
"""Readers of the test parts of the sets that have one."""

SETS_OF_KIND = {
    "image": ("cifar10-jpeg", "fashion-mnist", "digits"),
    "sentence": ("sentence-polarity",),
    "pair": ("word-occurrences",),
}
"""Which data sets a network can read, by what it reads."""


def load_training_data(kind: str, folder: Path | None, name: str = "") -> TrainingData:
    """A data set for a network that reads ``kind``; without a ``name`` the first, without a ``folder`` the digits."""
    fitting = SETS_OF_KIND[kind]
    chosen = name or ("digits" if folder is None and kind == "image" else fitting[0])
    if chosen not in fitting:
        raise DataError(f"data set {chosen!r} does not fit a network that reads {kind}s; use {' or '.join(fitting)}")
    return _read(DATA_SETS, chosen, folder)


def load_test_data(folder: Path | None, name: str) -> TrainingData:
    """The test part of a data set of `TEST_SETS`."""
    return _read(TEST_SETS, name, folder)


def _read(readers: dict[str, Callable[[Path], TrainingData]], chosen: str, folder: Path | None) -> TrainingData:
    if folder is None and chosen != "digits":
        raise DataError(f"data set {chosen} needs a folder; name the folder that holds it with --data or $ACF_DATA")
    try:
        return readers[chosen](folder or Path())
    except (OSError, EOFError, LookupError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"data set {chosen} cannot be read in {folder} ({error}); name the folder that holds it, whole"
        ) from error
