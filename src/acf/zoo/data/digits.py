"""Real images that arrive with a dependency: 1,797 handwritten digits of 8 x 8 pixels, and a small CNN for them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acf.errors import MissingDependencyError

_TEST_IMAGES = 360


@dataclass(frozen=True, eq=False)
class Digits:
    """Images ``[n, 1, 8, 8]`` in [-1, 1] and labels ``[n]``, split once and for all."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits() -> Digits:
    """The UCI digits that scikit-learn ships, 1,437 to train and 360 to test, split by a fixed permutation."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise MissingDependencyError(
            "scikit-learn is not installed and the digits come with it; install it with: pip install 'acf[demo]'"
        ) from error
    pixels, labels = load(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8.0 - 1.0  # pixels are 0 to 16
    targets = torch.tensor(labels, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:_TEST_IMAGES], order[_TEST_IMAGES:]
    return Digits(images[train], targets[train], images[test], targets[test])


def build_cnn() -> nn.Sequential:
    """Four convolutions and two linear layers, 256,000 weights; stem and head are too thin for a 16 x 16 block."""
    return nn.Sequential(
        *_convolution(1, 32),
        *_convolution(32, 64),
        *_convolution(64, 64, stride=2),
        *_convolution(64, 64),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def _convolution(inputs: int, outputs: int, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()
