"""ResNet-18 for images of 32 x 32 (CIFAR): a 3x3 stem without pooling, width 64 to 512."""

import torch
from torch import Tensor, nn

_STAGES, _BLOCKS_PER_STAGE = 4, 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, added to a shortcut that is projected where the shape changes (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, outputs, h / stride, w / stride]``."""
        inner = torch.relu(self.first_norm(self.first(maps)))
        return torch.relu(self.second_norm(self.second(inner)) + self.shortcut(maps))


def resnet18_cifar(channels: int = 3, classes: int = 10, width: int = 64) -> nn.Sequential:
    """ResNet-18 whose four stages are ``width`` to ``8 * width`` channels wide."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for stage in range(_STAGES):
        for block in range(_BLOCKS_PER_STAGE):
            outputs = width << stage
            layers.append(BasicBlock(inputs, outputs, stride=2 if stage > 0 and block == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
