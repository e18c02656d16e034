"""A decoder-only transformer for language modelling (Radford et al., 2019), pre-norm, without biases."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn import ExpertLinear, FusedSequential
from acf.zoo.networks.attention import causal_attention
from acf.zoo.networks.mixture import MixtureOfExperts

INITIAL_DEVIATION = 0.02  # GPT-2, section 2.3


@dataclass(frozen=True)
class GptSpec:
    """Shape of a GPT; the MLP's hidden layer is ``4 * width`` wide.

    ``attention_width`` is that of queries, keys and values over all heads, ``embedding_width`` that of the table of
    tokens, which also is the output layer; both are ``width`` unless given. What sparsity leaves alone costs less where
    they are narrower. With ``experts`` every MLP is a mixture of so many, of which a token takes one.
    """

    width: int = 1024
    layers: int = 12
    vocabulary: int = 16_384
    context: int = 1024
    attention_width: int | None = None
    embedding_width: int | None = None
    head_width: int = 128
    experts: int | None = None

    def __post_init__(self) -> None:
        for each in ("width", "attention_width", "embedding_width", "head_width", "experts"):
            if (size := getattr(self, each)) is not None and size < 1:
                raise SparsityError(f"{each} {size} is no positive integer; use such as 128")
        name = "width" if self.attention_width is None else "attention_width"
        if (inner := getattr(self, name)) % self.head_width:
            raise SparsityError(f"{name} {inner} is no multiple of {self.head_width}, a head's width; use one")

    @property
    def heads(self) -> int:
        """Attention heads."""
        return (self.attention_width or self.width) // self.head_width


class GptBlock(nn.Module):
    """Causal self-attention and MLP, each behind a layer norm; ``x [batch, context, width]``."""

    def __init__(self, spec: GptSpec) -> None:
        super().__init__()
        width, self.heads, self.head_width = spec.width, spec.heads, spec.head_width
        inner = self.heads * self.head_width
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * inner, bias=False)
        self.attention_out = nn.Linear(inner, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp: nn.Module = (
            FusedSequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))
            if spec.experts is None
            else MixtureOfExperts(width, 4 * width, spec.experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        """One residual block."""
        batch, context, _ = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, context, 3, self.heads, self.head_width)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = causal_attention(query, key, value)
        x = x + self.attention_out(attended.transpose(1, 2).flatten(2))
        hidden: Tensor = self.mlp(self.mlp_norm(x))
        return x + hidden


class Gpt(nn.Module):
    """``tokens [batch, context]`` to logits ``[batch, context, vocabulary]``; input and output embedding are tied."""

    def __init__(self, spec: GptSpec | None = None) -> None:
        super().__init__()
        spec = spec or GptSpec()
        self.spec = spec
        embedded = spec.embedding_width or spec.width
        self.token_embedding = nn.Embedding(spec.vocabulary, embedded)
        self.position_embedding = nn.Embedding(spec.context, spec.width)
        self.blocks = nn.Sequential(*(GptBlock(spec) for _ in range(spec.layers)))
        self.norm = nn.LayerNorm(spec.width, bias=False)
        self.apply(_initialise)
        self.embedding_in, self.embedding_out = (
            _same_variance(*widths) for widths in ((embedded, spec.width), (spec.width, embedded))
        )
        # The residual stream adds 2 * layers outputs; GPT-2 scales them so that their sum keeps the variance.
        for name, parameter in self.named_parameters():
            if name.endswith(("attention_out.weight", "mlp.2.weight", "mlp.down.weight")):
                nn.init.normal_(parameter, std=INITIAL_DEVIATION / (2 * spec.layers) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding_in(self.token_embedding(tokens)) + self.position_embedding(positions)
        if x.is_cuda and torch.is_autocast_enabled("cuda"):  # a residual stream of half the bytes
            x = x.to(torch.get_autocast_dtype("cuda"))
        x = self.embedding_out(self.norm(self.blocks(x)))
        return F.linear(x, self.token_embedding.weight)


def _same_variance(inputs: int, outputs: int) -> nn.Module:
    """A linear layer whose outputs have its inputs' variance; nothing between equal widths."""
    if inputs == outputs:
        return nn.Identity()
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=inputs**-0.5)
    return layer


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding | ExpertLinear):
        nn.init.normal_(module.weight, std=INITIAL_DEVIATION)
