"""ViT-B/16 for 224 x 224 images (Dosovitskiy et al., 2021), 86,567,656 parameters, and ViT-S/16, 22,050,664.

ViT-S is half as wide, with half the heads (Touvron et al., 2021: DeiT-S).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.zoo.networks.transformer import SelfAttention, feed_forward

_HEAD_WIDTH, _BLOCKS, _PATCH, _GRID = 64, 12, 16, 14


class VitBlock(nn.Module):
    """Attention and feed-forward layers, each with a residual, normalised before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = SelfAttention(width, width // _HEAD_WIDTH)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = feed_forward(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, tokens, width]``."""
        tokens = tokens + self.attention(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))  # type: ignore[no-any-return]


class Vit16(nn.Module):
    """Patches of 16 x 16, twelve blocks of ``width``; at other image sizes the positions are interpolated."""

    def __init__(self, width: int = 768, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, _PATCH, stride=_PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, _GRID * _GRID + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(VitBlock(width) for _ in range(_BLOCKS)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[batch, classes]`` of ``images [batch, 3, h, w]``, sides divisible by 16."""
        maps = self.patches(images)
        patches = maps.flatten(2).transpose(1, 2) + self._patch_positions(maps.shape[2], maps.shape[3])
        first = (self.class_token + self.positions[:, :1]).expand(len(images), -1, -1)
        tokens = self.blocks(torch.cat([first, patches], dim=1))
        return self.head(self.norm(tokens[:, 0]))  # type: ignore[no-any-return]

    def _patch_positions(self, height: int, width: int) -> Tensor:
        grid = self.positions[:, 1:]
        if (height, width) == (_GRID, _GRID):
            return grid
        maps = grid.transpose(1, 2).reshape(1, -1, _GRID, _GRID)
        return F.interpolate(maps, (height, width), mode="bicubic").flatten(2).transpose(1, 2)
