"""VGG-16 without normalisation (Simonyan and Zisserman, 2015, configuration D): 138,357,544 parameters.

`VggCifar` is the variant for images of 32 x 32: any stages, and a classifier as wide as the last of them.
"""

from torch import Tensor, nn

Stages = tuple[tuple[int, int], ...]
"""Convolutions and channels of every stage; each ends with max pooling."""

VGG16_STAGES: Stages = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
VGG8_STAGES: Stages = ((1, 32), (1, 64), (2, 128), (1, 128))


class Vgg16(nn.Module):
    """Thirteen 3x3 convolutions and three linear layers, ReLU after each; images of 32 x 32 or larger."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(*_convolutions(VGG16_STAGES))
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(7),
            nn.Flatten(),
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, h, w]``."""
        return self.classifier(self.features(images))  # type: ignore[no-any-return]


class VggCifar(nn.Module):
    """3x3 convolutions in ``stages`` and three linear layers; ``normalise``: batch normalisation before each ReLU."""

    def __init__(self, stages: Stages = VGG16_STAGES, normalise: bool = False, classes: int = 10) -> None:
        super().__init__()
        width = stages[-1][1]
        self.features = nn.Sequential(*_convolutions(stages, normalise), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, 32, 32]`` or larger."""
        return self.classifier(self.features(images))  # type: ignore[no-any-return]


def _convolutions(stages: Stages, normalise: bool = False) -> list[nn.Module]:
    layers: list[nn.Module] = []
    channels = 3
    for convolutions, width in stages:
        for _ in range(convolutions):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            layers += [nn.BatchNorm2d(width), nn.ReLU()] if normalise else [nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers
