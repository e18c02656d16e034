"""SqueezeNet 1.1 (Iandola et al., 2016, and its authors' later release): 1,235,496 parameters."""

import torch
from torch import Tensor, nn

# Input channels, squeezed channels, expanded channels of each of the two branches; None is max pooling.
_FIRES = (
    (64, 16, 64),
    (128, 16, 64),
    None,
    (128, 32, 128),
    (256, 32, 128),
    None,
    (256, 48, 192),
    (384, 48, 192),
    (384, 64, 256),
    (512, 64, 256),
)


class Fire(nn.Module):
    """A 1x1 convolution that squeezes the channels, then 1x1 and 3x3 convolutions side by side."""

    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.expand1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        """``[batch, 2 * expanded, h, w]``."""
        squeezed = torch.relu(self.squeeze(maps))
        return torch.cat([torch.relu(self.expand1(squeezed)), torch.relu(self.expand3(squeezed))], dim=1)


class SqueezeNet(nn.Module):
    """A stem, eight fire modules and a convolution as classifier; images of 32 x 32 or larger."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        fires = [nn.MaxPool2d(3, stride=2, ceil_mode=True) if sizes is None else Fire(*sizes) for sizes in _FIRES]
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, ceil_mode=True), *fires
        )
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Conv2d(512, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, h, w]``."""
        return self.classifier(self.features(images))  # type: ignore[no-any-return]
