"""The deep Q-network of Mnih et al., 2015: 1,687,206 parameters for the six actions of Pong."""

from torch import Tensor, nn

SCREEN = (4, 84, 84)
"""Frames of one input, and the pixels of a frame: Mnih et al., 2015, "Preprocessing"."""


class NatureDqn(nn.Module):
    """Three convolutions and two linear layers: ``[batch, 4, 84, 84]`` grey values 0 to 255 to ``[batch, actions]``.

    The outputs are action values. Inputs may be uint8; they are scaled to the range 0 to 1, less ``background``, a grey
    value on that scale: where most pixels have it, most inputs are zero.
    """

    def __init__(self, actions: int = 6, background: float = 0.0) -> None:
        super().__init__()
        self.background = background
        self.features = nn.Sequential(
            nn.Conv2d(SCREEN[0], 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.values = nn.Sequential(nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, actions))

    def forward(self, frames: Tensor) -> Tensor:
        """Values of all actions."""
        values: Tensor = self.values(self.features(frames.float() / 255.0 - self.background))
        return values
