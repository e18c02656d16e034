"""GoogLeNet with batch normalisation and both auxiliary classifiers: 13,004,888 parameters.

The third branch of an inception module has a 5x5 kernel in Szegedy et al. (2015) and a 3x3 one in the widely used
weights. The parameter count above is that of 3x3, the default here; ``GoogLeNet(branch_kernel=5, normalise=False)`` is
the paper's, with biases instead of batch normalisation.
"""

from functools import partial

import torch
from torch import Tensor, nn

# Input channels, then outputs of: 1x1; 1x1 before 3x3, 3x3; 1x1 before 5x5, 5x5; 1x1 after pooling.
# Szegedy et al., 2015, Table 1.
_INCEPTIONS = {
    "3a": (192, (64, 96, 128, 16, 32, 32)),
    "3b": (256, (128, 128, 192, 32, 96, 64)),
    "4a": (480, (192, 96, 208, 16, 48, 64)),
    "4b": (512, (160, 112, 224, 24, 64, 64)),
    "4c": (512, (128, 128, 256, 24, 64, 64)),
    "4d": (512, (112, 144, 288, 32, 64, 64)),
    "4e": (528, (256, 160, 320, 32, 128, 128)),
    "5a": (832, (256, 160, 320, 32, 128, 128)),
    "5b": (832, (384, 192, 384, 48, 128, 128)),
}


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, normalise: bool = True
) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=not normalise)
    return nn.Sequential(convolution, *([nn.BatchNorm2d(outputs, eps=1e-3)] if normalise else []), nn.ReLU())


def _pool(kernel: int = 3, stride: int = 2, padding: int = 0) -> nn.MaxPool2d:
    return nn.MaxPool2d(kernel, stride=stride, padding=padding, ceil_mode=True)


class Inception(nn.Module):
    """Four branches over the same input, concatenated along channels; ``outputs`` as in `_INCEPTIONS`."""

    def __init__(self, inputs: int, outputs: tuple[int, ...], branch_kernel: int, normalise: bool = True) -> None:
        super().__init__()
        one, before_3, three, before_5, five, pooled = outputs
        conv = partial(_convolution, normalise=normalise)
        self.branches = nn.ModuleList(
            [
                conv(inputs, one, 1),
                nn.Sequential(conv(inputs, before_3, 1), conv(before_3, three, 3, padding=1)),
                nn.Sequential(
                    conv(inputs, before_5, 1),
                    conv(before_5, five, branch_kernel, padding=branch_kernel // 2),
                ),
                nn.Sequential(_pool(3, stride=1, padding=1), conv(inputs, pooled, 1)),
            ]
        )

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, one + three + five + pooled, h, w]``."""
        return torch.cat([branch(maps) for branch in self.branches], dim=1)


def _auxiliary(inputs: int, classes: int, normalise: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4),
        _convolution(inputs, 128, 1, normalise=normalise),
        nn.Flatten(),
        nn.Linear(2048, 1024),
        nn.ReLU(),
        nn.Dropout(0.7),
        nn.Linear(1024, classes),
    )


class GoogLeNet(nn.Module):
    """A stem and nine inception modules; images of 32 x 32 or larger.

    Training returns the scores of all three classifiers, the main one first; evaluation those of the main one.
    """

    def __init__(self, classes: int = 1000, branch_kernel: int = 3, normalise: bool = True) -> None:
        super().__init__()
        modules = {name: Inception(*sizes, branch_kernel, normalise) for name, sizes in _INCEPTIONS.items()}
        conv = partial(_convolution, normalise=normalise)
        self.stem = nn.Sequential(
            conv(3, 64, 7, stride=2, padding=3),
            _pool(),
            conv(64, 64, 1),
            conv(64, 192, 3, padding=1),
            _pool(),
            modules["3a"],
            modules["3b"],
            _pool(),
            modules["4a"],
        )
        self.middle = nn.Sequential(modules["4b"], modules["4c"], modules["4d"])
        self.end = nn.Sequential(modules["4e"], _pool(2), modules["5a"], modules["5b"])
        self.auxiliary1 = _auxiliary(512, classes, normalise)
        self.auxiliary2 = _auxiliary(528, classes, normalise)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, classes))

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """Scores ``[batch, classes]`` of ``images [batch, 3, h, w]``; three of them in training."""
        first = self.stem(images)
        second = self.middle(first)
        scores: Tensor = self.head(self.end(second))
        return (scores, self.auxiliary1(first), self.auxiliary2(second)) if self.training else scores
