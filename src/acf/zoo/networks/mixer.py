"""MLP-Mixer-S/16 (Tolstikhin et al., 2021): 18,528,264 parameters for 224 x 224 images, 18,774,504 for 256 x 256."""

from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn import FusedSequential
from acf.zoo.networks.transformer import feed_forward

_WIDTH, _TOKEN_HIDDEN, _BLOCKS, _PATCH = 512, 256, 8, 16


class MixerBlock(nn.Module):
    """An MLP across the patches of each channel and one across the channels of each patch, each with a residual."""

    def __init__(self, patches: int) -> None:
        super().__init__()
        self.token_norm = nn.LayerNorm(_WIDTH, eps=1e-6)
        self.token_mlp = FusedSequential(
            nn.Linear(patches, _TOKEN_HIDDEN), nn.GELU(), nn.Linear(_TOKEN_HIDDEN, patches)
        )
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-6)
        self.mlp = feed_forward(_WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, patches, width]``."""
        tokens = tokens + self.token_mlp(self.token_norm(tokens).transpose(1, 2)).transpose(1, 2)
        return tokens + self.mlp(self.norm(tokens))  # type: ignore[no-any-return]


class MixerS16(nn.Module):
    """Patches of 16 x 16, eight blocks of width 512.

    The default ``image_size`` makes 256 patches, which blocks of 8 to 128 divide; the published one is 224.
    """

    def __init__(self, classes: int = 1000, image_size: int = 256) -> None:
        super().__init__()
        if image_size < _PATCH or image_size % _PATCH:
            raise SparsityError(f"image size {image_size} does not divide into patches of {_PATCH}; use a multiple")
        self.patches = nn.Conv2d(3, _WIDTH, _PATCH, stride=_PATCH)
        self.blocks = nn.Sequential(*(MixerBlock((image_size // _PATCH) ** 2) for _ in range(_BLOCKS)))
        self.norm = nn.LayerNorm(_WIDTH, eps=1e-6)
        self.head = nn.Linear(_WIDTH, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, image_size, image_size]``."""
        # Contiguous, else every sum keeps the layout of the convolution and every layer norm makes a copy of its own.
        tokens = self.blocks(self.patches(images).flatten(2).transpose(1, 2).contiguous())
        return self.head(self.norm(tokens).mean(dim=1))  # type: ignore[no-any-return]
