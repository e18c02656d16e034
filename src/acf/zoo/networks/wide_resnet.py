"""Wide residual networks for images of 32 x 32 (Zagoruyko and Komodakis, 2016), without dropout."""

import torch
from torch import Tensor, nn

from acf.errors import SparsityError


class PreActivationBlock(nn.Module):
    """Batch norm, ReLU, 3x3 convolution, twice, beside a shortcut: the paper's B(3, 3)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        changes = stride > 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, outputs, h / stride, w / stride]``."""
        activated = torch.relu(self.first_norm(maps))
        inner: Tensor = self.second(torch.relu(self.second_norm(self.first(activated))))
        return inner + (maps if self.shortcut is None else self.shortcut(activated))


def wide_resnet(channels: int = 3, classes: int = 10, width: int = 10, depth: int = 28) -> nn.Sequential:
    """WRN-``depth``-``width``: stages of ``16 * width``, ``32 * width`` and ``64 * width`` channels.

    >>> sum(parameter.numel() for parameter in wide_resnet().parameters())
    36479194
    """
    if depth % 6 != 4:
        raise SparsityError(f"depth {depth} is not 6 n + 4, as three stages of two-convolution blocks need; use 28")
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False)]
    inputs = 16
    for stage in range(3):
        outputs = 16 * width << stage
        for block in range((depth - 4) // 6):
            layers.append(PreActivationBlock(inputs, outputs, stride=2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(
        *layers, nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)
    )
