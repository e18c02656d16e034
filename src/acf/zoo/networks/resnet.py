"""ResNet-50 with the stride in a block's 3x3 convolution (He et al., 2016): 25,557,032 parameters."""

import torch
from torch import Tensor, nn

# Blocks and inner width of every stage.
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            *_convolution(inputs, width, 1),
            nn.ReLU(),
            *_convolution(width, width, 3, stride),
            nn.ReLU(),
            *_convolution(width, outputs, 1),
        )
        changes = stride > 1 or inputs != outputs
        self.shortcut = nn.Sequential(*_convolution(inputs, outputs, 1, stride)) if changes else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, 4 * width, h / stride, w / stride]``."""
        return torch.relu(self.branch(maps) + self.shortcut(maps))


class ResNet50(nn.Module):
    """A stem, sixteen bottlenecks and a linear head; images of 32 x 32 or larger."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        blocks: list[nn.Module] = []
        channels = 64
        for stage, (count, width) in enumerate(_STAGES):
            for block in range(count):
                blocks.append(Bottleneck(channels, width, stride=2 if stage > 0 and block == 0 else 1))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, h, w]``."""
        return self.head(self.blocks(self.stem(images)))  # type: ignore[no-any-return]
