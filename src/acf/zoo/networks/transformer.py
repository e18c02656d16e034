"""Transformer-Base (Vaswani et al., 2017), 63,082,496 parameters, and the attention that ViT and BERT share.

Attention is built from linear layers and torch's own function, so that `acf.capture` sees every product.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.nn import FusedSequential

VOCABULARY = 37_000
"""Shared source and target vocabulary, about 37,000 tokens: Vaswani et al., 2017, section 5.1."""

_WIDTH, _HEADS, _INNER, _LAYERS = 512, 8, 2048, 6


class SelfAttention(nn.Module):
    """Multi-head attention of ``[batch, tokens, width]`` with itself; ``mask`` is True where a token may be read.

    Query, key and value come from one linear layer.
    """

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
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(context.transpose(1, 2).reshape(batch, length, width))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Multi-head attention from ``[batch, queries, width]`` to ``[batch, keys, width]``, four linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, queries: Tensor, keys: Tensor, causal: bool = False) -> Tensor:
        """``[batch, queries, width]``; ``causal``: a token reads itself and those before it."""
        query, key, value = (
            self._split(layer(tokens))
            for layer, tokens in ((self.query, queries), (self.key, keys), (self.value, keys))
        )
        context = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.output(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        return tokens.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)


def feed_forward(width: int) -> FusedSequential:
    """Two linear layers around a GELU, four times as wide within."""
    return FusedSequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part with a ReLU, each with a residual and normalised after it."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attention = Attention(_WIDTH, _HEADS)
        self.self_norm = nn.LayerNorm(_WIDTH)
        self.inner = nn.Linear(_WIDTH, _INNER)
        self.outer = nn.Linear(_INNER, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, tokens, width]``."""
        return self.feed_forward(self.attend(tokens, causal=False))

    def attend(self, tokens: Tensor, causal: bool) -> Tensor:
        """Tokens after self-attention."""
        attended = self.self_attention(tokens, tokens, causal)
        return self.self_norm(tokens + self.dropout(attended))  # type: ignore[no-any-return]

    def feed_forward(self, tokens: Tensor) -> Tensor:
        """Tokens after the feed-forward part."""
        return self.norm(tokens + self.dropout(self.outer(torch.relu(self.inner(tokens)))))  # type: ignore[no-any-return]


class DecoderLayer(EncoderLayer):
    """An encoder layer with causal self-attention, and attention to the encoder's output before the feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.cross_attention = Attention(_WIDTH, _HEADS)
        self.cross_norm = nn.LayerNorm(_WIDTH)

    def forward(self, tokens: Tensor, encoded: Tensor) -> Tensor:  # type: ignore[override]
        """``[batch, tokens, width]`` from tokens and ``encoded [batch, source tokens, width]``."""
        tokens = self.attend(tokens, causal=True)
        tokens = self.cross_norm(tokens + self.dropout(self.cross_attention(tokens, encoded)))
        return self.feed_forward(tokens)


class TransformerBase(nn.Module):
    """Six encoder and six decoder layers of width 512; embeddings and output projection share one matrix."""

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, _WIDTH)
        nn.init.normal_(self.embedding.weight, std=_WIDTH**-0.5)
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(_LAYERS))
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(_LAYERS))
        self.dropout = nn.Dropout(0.1)

    def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        """Scores ``[batch, target tokens, vocabulary]`` of the next token after each of ``target [batch, tokens]``.

        Without a ``target`` the first argument holds both, ``[batch, 2, tokens]``.
        """
        if target is None:
            source, target = source.unbind(1)
        encoded = self._embed(source)
        for layer in self.encoder:
            encoded = layer(encoded)
        decoded = self._embed(target)
        for layer in self.decoder:
            decoded = layer(decoded, encoded)
        return F.linear(decoded, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens) * math.sqrt(_WIDTH)
        return self.dropout(embedded + _positions(tokens.shape[1], embedded))  # type: ignore[no-any-return]


def _positions(tokens: int, like: Tensor) -> Tensor:
    """Sines and cosines of the position, ``[tokens, width]``: Vaswani et al., 2017, section 3.5."""
    position = torch.arange(tokens, device=like.device)[:, None]
    rate = torch.exp(torch.arange(0, _WIDTH, 2, device=like.device) * (-math.log(10_000.0) / _WIDTH))
    return torch.stack([torch.sin(position * rate), torch.cos(position * rate)], dim=2).flatten(1)
