"""Transformer-Base (Vaswani et al., 2017), 63,082,496 parameters, and the attention that ViT and BERT share.

Attention is built from linear layers and torch's own function, so that `acf.capture` sees every product.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn import FusedSequential

VOCABULARY = 37_000
"""Shared source and target vocabulary, about 37,000 tokens: Vaswani et al., 2017, section 5.1."""


@dataclass(frozen=True)
class TransformerSpec:
    """Sizes of an encoder-decoder; the defaults are Transformer-Base's (Vaswani et al., 2017, Table 3).

    ``layers`` are those of the encoder, and as many of the decoder. ``padding`` is the token that fills up short source
    sentences and that attention must not read; None: there is none.
    """

    vocabulary: int = VOCABULARY
    width: int = 512
    heads: int = 8
    inner: int = 2048
    layers: int = 6
    dropout: float = 0.1
    padding: int | None = None

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads):
            raise SparsityError(
                f"width {self.width} is no multiple of twice the {self.heads} heads; use one such as {8 * self.heads}"
            )


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

    def forward(self, queries: Tensor, keys: Tensor, causal: bool = False, mask: Tensor | None = None) -> Tensor:
        """``[batch, queries, width]``; ``causal``: a token reads itself and those before it.

        ``mask [batch, 1, 1, keys]`` is True where a key may be read.
        """
        return self.attend(queries, *self.keys_and_values(keys), causal, mask)

    def keys_and_values(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What ``tokens [batch, keys, width]`` offer to queries, ``[batch, heads, keys, width / heads]`` each."""
        return self._split(self.key(tokens)), self._split(self.value(tokens))

    def attend(
        self, queries: Tensor, key: Tensor, value: Tensor, causal: bool = False, mask: Tensor | None = None
    ) -> Tensor:
        """``[batch, queries, width]`` from what `keys_and_values` gave."""
        query = self._split(self.query(queries))
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.output(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        return tokens.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)


def feed_forward(width: int) -> FusedSequential:
    """Two linear layers around a GELU, four times as wide within."""
    return FusedSequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part with a ReLU, each with a residual and normalised after it."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.self_attention = Attention(spec.width, spec.heads)
        self.self_norm = nn.LayerNorm(spec.width)
        self.inner = nn.Linear(spec.width, spec.inner)
        self.outer = nn.Linear(spec.inner, spec.width)
        self.norm = nn.LayerNorm(spec.width)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """``[batch, tokens, width]``; ``mask [batch, 1, 1, tokens]`` is True where a token may be read."""
        return self.feed_forward(self.attend(tokens, causal=False, mask=mask))

    def attend(self, tokens: Tensor, causal: bool, mask: Tensor | None = None) -> Tensor:
        """Tokens after self-attention."""
        attended = self.self_attention(tokens, tokens, causal, mask)
        return self.self_norm(tokens + self.dropout(attended))  # type: ignore[no-any-return]

    def feed_forward(self, tokens: Tensor) -> Tensor:
        """Tokens after the feed-forward part."""
        return self.norm(tokens + self.dropout(self.outer(torch.relu(self.inner(tokens)))))  # type: ignore[no-any-return]


class DecoderLayer(EncoderLayer):
    """An encoder layer with causal self-attention, and attention to the encoder's output before the feed-forward."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__(spec)
        self.cross_attention = Attention(spec.width, spec.heads)
        self.cross_norm = nn.LayerNorm(spec.width)

    def forward(self, tokens: Tensor, encoded: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """``[batch, tokens, width]`` from tokens and ``encoded [batch, source tokens, width]``; ``mask`` is theirs."""
        tokens = self.attend(tokens, causal=True)
        attended = self.cross_attention(tokens, encoded, False, mask)
        return self.feed_forward(self.cross_norm(tokens + self.dropout(attended)))

    def forward_next(self, token: Tensor, state: "DecoderState", index: int) -> Tensor:
        """``[batch, 1, width]`` of the newest ``token``; those before it are in ``state``, for layer ``index``."""
        past = state.take_in(index, self.self_attention.keys_and_values(token))
        token = self.self_norm(token + self.dropout(self.self_attention.attend(token, *past)))
        attended = self.cross_attention.attend(token, *state.source[index], mask=state.mask)
        return self.feed_forward(self.cross_norm(token + self.dropout(attended)))


KeysAndValues = tuple[Tensor, Tensor]
"""``[batch, heads, tokens, width / heads]`` each."""


class DecoderState:
    """What decoding token by token keeps: keys and values of the source and of the ``length`` tokens so far."""

    def __init__(self, source: list[KeysAndValues], mask: Tensor | None) -> None:
        self.source, self.mask, self.length = source, mask, 0
        self._past: list[KeysAndValues | None] = [None] * len(source)

    def take_in(self, index: int, newest: KeysAndValues) -> KeysAndValues:
        """Keys and values of all tokens in layer ``index``, the newest included."""
        before = self._past[index]
        pairs = newest if before is None else tuple(torch.cat(pair, dim=2) for pair in zip(before, newest, strict=True))
        self._past[index] = pairs[0], pairs[1]
        return pairs[0], pairs[1]

    def reorder(self, origin: Tensor) -> None:
        """Let row i go on from row ``origin[i]``, whose source is the same: beams that were chosen and dropped."""
        self._past = [past and (past[0][origin], past[1][origin]) for past in self._past]


class Transformer(nn.Module):
    """An encoder and a decoder of ``spec``; embeddings and output projection share one matrix."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(spec.vocabulary, spec.width)
        nn.init.normal_(self.embedding.weight, std=spec.width**-0.5)
        self.encoder = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.layers))
        self.decoder = nn.ModuleList(DecoderLayer(spec) for _ in range(spec.layers))
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
        """Scores ``[batch, target tokens, vocabulary]`` of the next token after each of ``target [batch, tokens]``.

        Without a ``target`` the first argument holds both, ``[batch, 2, tokens]``.
        """
        if target is None:
            source, target = source.unbind(1)
        mask = self.source_mask(source)
        return self.decode(target, self.encode(source, mask), mask)

    def source_mask(self, source: Tensor) -> Tensor | None:
        """True ``[batch, 1, 1, tokens]`` where ``source [batch, tokens]`` is no padding; None without padding."""
        return None if self.spec.padding is None else (source != self.spec.padding)[:, None, None]

    def encode(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """``[batch, source tokens, width]``."""
        encoded = self._embed(source)
        for layer in self.encoder:
            encoded = layer(encoded, mask)
        return encoded

    def decode(self, target: Tensor, encoded: Tensor, mask: Tensor | None) -> Tensor:
        """Scores ``[batch, target tokens, vocabulary]`` of the next tokens; ``mask`` is that of the source."""
        decoded = self._embed(target)
        for layer in self.decoder:
            decoded = layer(decoded, encoded, mask)
        return F.linear(decoded, self.embedding.weight)

    def decoder_state(self, encoded: Tensor, mask: Tensor | None) -> "DecoderState":
        """Where decoding token by token begins; ``encoded`` and ``mask`` are the source's."""
        return DecoderState([layer.cross_attention.keys_and_values(encoded) for layer in self._decoder_layers], mask)

    def decode_next(self, tokens: Tensor, state: "DecoderState") -> Tensor:
        """Scores ``[batch, vocabulary]`` of the tokens after ``tokens [batch]``, which ``state`` takes in.

        The last row of what `decode` gives for the whole prefix, without computing the prefix again.
        """
        decoded = self._embed(tokens[:, None], first=state.length)
        for index, layer in enumerate(self._decoder_layers):
            decoded = layer.forward_next(decoded, state, index)
        state.length += 1
        return F.linear(decoded[:, 0], self.embedding.weight)

    @property
    def _decoder_layers(self) -> list[DecoderLayer]:
        return list(self.decoder)  # type: ignore[arg-type]

    def _embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Embeddings of ``tokens [batch, count]``, the first of which has the position ``first``."""
        embedded = self.embedding(tokens) * math.sqrt(self.spec.width)
        return self.dropout(embedded + _positions(first + tokens.shape[1], embedded)[first:])  # type: ignore[no-any-return]


class TransformerBase(Transformer):
    """Six encoder and six decoder layers of width 512."""

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        super().__init__(TransformerSpec(vocabulary))


def _positions(tokens: int, like: Tensor) -> Tensor:
    """Sines and cosines of the position, ``[tokens, width]``: Vaswani et al., 2017, section 3.5."""
    width = like.shape[-1]
    position = torch.arange(tokens, device=like.device)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, device=like.device) * (-math.log(10_000.0) / width))
    return torch.stack([torch.sin(position * rate), torch.cos(position * rate)], dim=2).flatten(1)
