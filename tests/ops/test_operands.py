"""Operands that a product cannot have are refused, by the function that is called."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from acf.errors import ArgumentError
from acf.ops import block_conv2d, block_linear
from acf.ops.conv_transpose import block_conv_transpose2d
from acf.ops.dense_experts import dense_experts
from acf.ops.experts import block_experts
from acf.ops.gated import block_gated_mlp
from acf.ops.geometry import Conv2dGeometry
from acf.ops.mlp import MlpLayer, block_mlp
from acf.sparse import BlockLayout, BlockTopology

POINTWISE = Conv2dGeometry((1, 1), (1, 1), (0, 0), (1, 1))
OFFSETS = torch.tensor([0, 4])
WEIGHT = torch.full((4, 4, 4), 0.5)


def topology() -> BlockTopology:
    return BlockTopology.from_mask(BlockLayout(8, 8, 4, 4), torch.ones(2, 2, dtype=torch.bool))


def layer() -> MlpLayer:
    return MlpLayer(WEIGHT, topology())


PRODUCTS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: block_linear(x, WEIGHT, topology()),
    "dense_experts": lambda x: dense_experts(x, torch.full((1, 4, 8), 0.5), OFFSETS),
    "experts": lambda x: block_experts(x, WEIGHT, topology(), OFFSETS),
    "mlp": lambda x: block_mlp(x, layer(), layer()),
    "gated_mlp": lambda x: block_gated_mlp(x, layer(), layer(), layer()),
    "conv2d": lambda x: block_conv2d(x[..., None, None], WEIGHT, topology(), POINTWISE),
    "conv_transpose2d": lambda x: block_conv_transpose2d(x[..., None, None], WEIGHT, topology(), POINTWISE),
}
"""Products of ``x [4, 8]`` by their names."""


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_integers_are_refused_since_weights_would_lose_their_fractions(name: str, dtype: torch.dtype) -> None:
    assert PRODUCTS[name](torch.ones(4, 8)).abs().max() > 0
    with pytest.raises(ArgumentError, match=r"an operand is \w+, .* loses its fractions; pass floating-point values"):
        PRODUCTS[name](torch.ones(4, 8).to(dtype))


@pytest.mark.parametrize(("bias", "message"), [("x", "bias is 'x', of type str"), (torch.ones(()), "bias has shape")])
def test_a_bias_that_is_no_vector_is_refused(bias: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        block_linear(torch.ones(4, 8), WEIGHT, topology(), bias)
    with pytest.raises(ArgumentError, match=message):
        block_conv2d(torch.ones(4, 8, 1, 1), WEIGHT, topology(), POINTWISE, bias)
