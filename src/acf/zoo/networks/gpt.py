"""A decoder-only transformer for language modelling (Radford et al., 2019), pre-norm, without biases."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn import FusedSequential
from acf.zoo.networks.attention import causal_attention

HEAD_WIDTH = 128
INITIAL_DEVIATION = 0.02  # GPT-2, section 2.3


@dataclass(frozen=True)
class GptSpec:
    """Shape of a GPT; the MLP's hidden layer is ``4 * width`` wide, heads are 128 wide."""

    width: int = 1024
    layers: int = 12
    vocabulary: int = 16_384
    context: int = 1024

    def __post_init__(self) -> None:
        if self.width % HEAD_WIDTH or self.width < HEAD_WIDTH:
            raise SparsityError(f"width {self.width} is no multiple of {HEAD_WIDTH}, a head's width; use one")

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.width // HEAD_WIDTH


class GptBlock(nn.Module):
    """Causal self-attention and MLP, each behind a layer norm; ``x [batch, context, width]``."""

    def __init__(self, spec: GptSpec) -> None:
        super().__init__()
        width, self.heads = spec.width, spec.heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp = FusedSequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """One residual block."""
        batch, context, width = x.shape
        split = self.query_key_value(self.attention_norm(x)).view(batch, context, 3, self.heads, HEAD_WIDTH)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = causal_attention(query, key, value)
        x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, context, width))
        hidden: Tensor = self.mlp(self.mlp_norm(x))
        return x + hidden


class Gpt(nn.Module):
    """``tokens [batch, context]`` to logits ``[batch, context, vocabulary]``; input and output embedding are tied."""

    def __init__(self, spec: GptSpec | None = None) -> None:
        super().__init__()
        spec = spec or GptSpec()
        self.spec = spec
        self.token_embedding = nn.Embedding(spec.vocabulary, spec.width)
        self.position_embedding = nn.Embedding(spec.context, spec.width)
        self.blocks = nn.Sequential(*(GptBlock(spec) for _ in range(spec.layers)))
        self.norm = nn.LayerNorm(spec.width, bias=False)
        self.apply(_initialise)
        # The residual stream adds 2 * layers outputs; GPT-2 scales them so that their sum keeps the variance.
        for name, parameter in self.named_parameters():
            if name.endswith(("attention_out.weight", "mlp.2.weight")):
                nn.init.normal_(parameter, std=INITIAL_DEVIATION / (2 * spec.layers) ** 0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        if x.is_cuda and torch.is_autocast_enabled("cuda"):  # a residual stream of half the bytes
            x = x.to(torch.get_autocast_dtype("cuda"))
        x = self.norm(self.blocks(x))
        return F.linear(x, self.token_embedding.weight)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_DEVIATION)
