"""AlexNet in one column (Krizhevsky, 2014; 61,100,840 parameters) or two (Krizhevsky et al., 2012; 60,965,224)."""

from torch import Tensor, nn

# Of the five convolutions: output channels and groups; then the padding of the first.
_COLUMNS = {
    1: ((64, 192, 384, 256, 256), (1, 1, 1, 1, 1), 2),
    2: ((96, 256, 384, 384, 256), (1, 2, 1, 2, 2), 0),
}


class AlexNet(nn.Module):
    """Five convolutions and three linear layers, ReLU after each, no normalisation; images of 63 x 63 or larger.

    ``columns``: 1, for images of 224 x 224, or 2: the grouped convolutions of the original, for 227 x 227.
    """

    def __init__(self, classes: int = 1000, columns: int = 1) -> None:
        super().__init__()
        (c1, c2, c3, c4, c5), (_, g2, g3, g4, g5), padding = _COLUMNS[columns]
        self.features = nn.Sequential(
            nn.Conv2d(3, c1, 11, stride=4, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(c1, c2, 5, padding=2, groups=g2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(c2, c3, 3, padding=1, groups=g3),
            nn.ReLU(),
            nn.Conv2d(c3, c4, 3, padding=1, groups=g4),
            nn.ReLU(),
            nn.Conv2d(c4, c5, 3, padding=1, groups=g5),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
        )
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(6),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(c5 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, h, w]``."""
        return self.classifier(self.features(images))  # type: ignore[no-any-return]
