"""The networks that are trained: ResNet-18 for small images, and a small net for grey ones."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

_STAGE_BLOCKS = 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        changes = stride > 1 or inputs != outputs
        self.shortcut: nn.Module = nn.Identity()
        if changes:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, outputs, h / stride, w / stride]``."""
        inner = torch.relu(self.first_norm(self.first(maps)))
        return torch.relu(self.second_norm(self.second(inner)) + self.shortcut(maps))


def resnet18(channels: int, classes: int, width: int = 64) -> nn.Sequential:
    """ResNet-18 with the 3x3 stem for images of 32 x 32, its four stages ``width`` to ``8 * width`` wide."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        for block in range(_STAGE_BLOCKS):
            outputs = width << stage
            layers.append(BasicBlock(inputs, outputs, stride=2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def small_net(channels: int, classes: int, width: int = 32) -> nn.Sequential:
    """Four convolutions, three of them strided, and a linear head: what a CPU trains in seconds."""
    layers: list[nn.Module] = []
    inputs = channels
    for outputs, stride in ((width, 2), (2 * width, 2), (2 * width, 1), (4 * width, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


NETWORKS: dict[str, Callable[[int, int, int], nn.Sequential]] = {"resnet18": resnet18, "small": small_net}
"""Builders by name; each takes the images' channels, the classes and the width of the first layer."""
