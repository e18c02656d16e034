"""Self-attention from linear layers and torch's own function, so that `acf.capture` sees every product."""

import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Multi-head attention of ``[batch, tokens, width]`` with itself; ``mask`` is True where a token may be read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """``[batch, tokens, width]``."""
        batch, length, width = tokens.shape
        split = self.inputs(tokens).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(read.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


def feed_forward(width: int) -> nn.Sequential:
    """Two linear layers around a GELU, four times as wide within."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
