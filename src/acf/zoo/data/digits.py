"""The UCI digits that scikit-learn ships: 1,797 grey images of 8 x 8 in ten classes; needs no data folder."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from acf.extras import import_optional
from acf.zoo.data.labelled_data import LabelledData

_TEST_IMAGES = 360


@dataclass(frozen=True, eq=False)
class Digits:
    """Images ``[n, 1, 8, 8]`` in [-1, 1] and labels ``[n]``, 1,437 to train on and 360 to test on."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits() -> Digits:
    """The digits, split by a fixed permutation."""
    datasets = import_optional("sklearn.datasets", needed_by="the data set of digits")
    pixels, labels = datasets.load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8.0 - 1.0  # pixels are 0 to 16
    targets = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:_TEST_IMAGES], order[_TEST_IMAGES:]
    return Digits(images[train], targets[train], images[test], targets[test])


def read_digits(folder: Path, split: str) -> LabelledData:
    """One part of the digits as uint8, like the images of the other data sets; ``folder`` is not used."""
    digits = load_digits()
    parts = {
        "train": (digits.train_images, digits.train_labels),
        "test": (digits.test_images, digits.test_labels),
    }
    images, labels = parts[split]
    return LabelledData("scikit-learn digits", ((images + 1) * 127.5).round().to(torch.uint8), labels)
