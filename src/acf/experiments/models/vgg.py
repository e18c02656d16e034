"""VGG-16 without normalisation (Simonyan and Zisserman, 2015, configuration D): 138,357,544 parameters."""

from torch import Tensor, nn

# Convolutions and width of every stage; a pooling ends each.
_STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))


class Vgg16(nn.Module):
    """Thirteen 3x3 convolutions and three linear layers, ReLU after each; images of 32 x 32 or larger."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(*_convolutions())
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


def _convolutions() -> list[nn.Module]:
    layers: list[nn.Module] = []
    channels = 3
    for convolutions, width in _STAGES:
        for _ in range(convolutions):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers
