"""ResNet-50 with the stride in a block's 3x3 convolution (He et al., 2016): 25,557,032 parameters."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, added to a shortcut that is projected where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = _convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = _convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = _convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        self.downsample_norm: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.downsample = _convolution(inputs, outputs, 1, stride)
            self.downsample_norm = nn.BatchNorm2d(outputs)

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, 4 * width, h / stride, w / stride]``."""
        inner = torch.relu(self.norm1(self.conv1(maps)))
        inner = torch.relu(self.norm2(self.conv2(inner)))
        outputs = self.norm3(self.conv3(inner))
        return torch.relu(outputs + self.downsample_norm(self.downsample(maps)))


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride)
    return nn.Sequential(first, *(Bottleneck(4 * width, width, 1) for _ in range(blocks - 1)))


BLOCKS = (3, 4, 6, 3)
"""Bottlenecks of each stage: He et al., 2016, Table 1."""


class ResNet50(nn.Module):
    """A stem, four stages of bottlenecks and a linear classifier.

    The stem is a 7x7 convolution and a pooling, both of stride 2. With ``small_images`` it is a 3x3 convolution of
    stride 1, as networks for images of 32 x 32 and below have it. ``width`` is that of the first stage's bottlenecks,
    and ``blocks`` is how many bottlenecks each stage has.
    """

    def __init__(
        self,
        classes: int = 1000,
        channels: int = 3,
        width: int = 64,
        small_images: bool = False,
        blocks: Sequence[int] = BLOCKS,
    ) -> None:
        super().__init__()
        self.conv1 = _convolution(channels, width, 3) if small_images else _convolution(channels, width, 7, 2)
        self.norm1 = nn.BatchNorm2d(width)
        self.pool: nn.Module = nn.Identity() if small_images else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(width, width, blocks[0], stride=1)
        self.layer2 = _stage(4 * width, 2 * width, blocks[1], stride=2)
        self.layer3 = _stage(8 * width, 4 * width, blocks[2], stride=2)
        self.layer4 = _stage(16 * width, 8 * width, blocks[3], stride=2)
        self.average = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(32 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, channels, h, w]``."""
        maps = self.pool(torch.relu(self.norm1(self.conv1(images))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps = stage(maps)
        return self.fc(self.average(maps))  # type: ignore[no-any-return]
