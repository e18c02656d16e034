"""Sizes, kinds and devices that do not fit together are refused before a kernel reads memory that is not its own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from acf.errors import AcfError
from acf.ops import (
    Conv2dGeometry,
    MlpLayer,
    block_conv2d,
    block_conv2d_for_batch_norm,
    block_conv2d_gradient_norms,
    block_conv_transpose2d,
    block_experts,
    block_experts_gradient_norms,
    block_gated_mlp,
    block_gradient_norms,
    block_linear,
    block_mlp,
    dense_experts,
)
from acf.sparse import BlockLayout, BlockTopology

X = torch.ones(4, 16)
IMAGES = X[..., None, None]
WEIGHT = torch.full((2, 8, 8), 0.5)
TOPOLOGY = BlockTopology.from_mask(BlockLayout(16, 16, 8, 8), torch.eye(2, dtype=torch.bool))
STACKED = BlockTopology.from_mask(BlockLayout(16, 8, 8, 8, stacked=2), torch.ones(2, 1, dtype=torch.bool))
LAYER = MlpLayer(WEIGHT, TOPOLOGY)
WIDE = MlpLayer(torch.ones(1, 8, 8), BlockTopology.from_mask(BlockLayout(8, 8, 8, 8), torch.ones(1, 1) > 0))
POINTWISE = Conv2dGeometry((1, 1))
SHORT = torch.ones(1)
PLACES = torch.tensor([0, 1])
OFFSETS = torch.tensor([0, 2, 4])


def of_wide(gate: Any) -> Tensor:
    return block_gated_mlp(X, gate, LAYER, LAYER)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "an input of another width": (lambda: block_linear(X[:, :8], WEIGHT, TOPOLOGY), "takes 16 features; pass"),
    "a bias of one value": (lambda: block_linear(X, WEIGHT, TOPOLOGY, SHORT), r"bias has shape \[1\]; pass one value"),
    "a weight of four dimensions": (
        lambda: block_linear(X, WEIGHT[None], TOPOLOGY),
        "weight has shape .*; pass packed",
    ),
    "no topology": (lambda: block_linear(X, WEIGHT, None), "topology is None, of type NoneType; pass"),  # type: ignore[arg-type]
    "images of other channels": (
        lambda: block_conv2d(IMAGES[:, :8], WEIGHT, TOPOLOGY, POINTWISE),
        "8 channels, .* 16;",
    ),
    "no geometry": (lambda: block_conv2d(IMAGES, WEIGHT, TOPOLOGY, None), "geometry is None, .*; pass"),  # type: ignore[arg-type]
    "a stride of 0": (
        lambda: block_conv2d(IMAGES, WEIGHT, TOPOLOGY, Conv2dGeometry((1, 1), (0, 1))),
        r"stride is \(0, 1\); pass two integers, each at least 1",
    ),
    "a fraction of a dilation": (
        lambda: block_conv2d(IMAGES, WEIGHT, TOPOLOGY, Conv2dGeometry((1, 1), dilation=(0.5, 1))),  # type: ignore[arg-type]
        r"dilation is \(0.5, 1\); pass two integers",
    ),
    "a bias of a matrix before a batch norm": (
        lambda: block_conv2d_for_batch_norm(IMAGES, WEIGHT, TOPOLOGY, POINTWISE, torch.ones(16, 1)),
        r"bias has shape \[16, 1\]; pass one value",
    ),
    "integers before a batch norm": (
        lambda: block_conv2d_for_batch_norm(IMAGES.long(), WEIGHT, TOPOLOGY, POINTWISE),
        "an operand is int64, .*; pass floating-point values",
    ),
    "a transposed convolution of other channels": (
        lambda: block_conv_transpose2d(IMAGES[:, :8], WEIGHT, TOPOLOGY, POINTWISE),
        "x has 8 channels, and the layer takes 16; pass",
    ),
    "a transposed convolution with a bias of one value": (
        lambda: block_conv_transpose2d(IMAGES, WEIGHT, TOPOLOGY, POINTWISE, bias=SHORT),
        "one value for each of 16 output channels",
    ),
    "an output padding of one number": (
        lambda: block_conv_transpose2d(IMAGES, WEIGHT, TOPOLOGY, POINTWISE, (0,)),  # type: ignore[arg-type]
        r"output_padding is \(0,\); pass two integers",
    ),
    "a first bias of one value": (
        lambda: block_mlp(X, LAYER._replace(bias=SHORT), LAYER),
        "each of 16 output channels",
    ),
    "a second bias of one value": (
        lambda: block_mlp(X, LAYER, LAYER._replace(bias=SHORT)),
        "each of 16 output channels",
    ),
    "layers that do not follow": (lambda: block_mlp(X, LAYER, WIDE), "8 inputs cannot follow one of 16 outputs; pass"),
    "an unknown activation": (lambda: block_mlp(X, LAYER, LAYER, "scale"), "activation is 'scale'; use one of gelu"),
    "a pair in place of a layer": (lambda: of_wide((WEIGHT, TOPOLOGY)), "gate is .*, of type tuple; pass an MlpLayer"),
    "a gate of another width": (lambda: of_wide(WIDE), "the layer takes 8 features; pass"),
    "offsets in a list": (lambda: block_experts(X[:, :8], WEIGHT, STACKED, [0, 2, 4]), "offsets is .* list; pass"),  # type: ignore[arg-type]
    "offsets that are fractions": (
        lambda: block_experts(X[:, :8], WEIGHT, STACKED, OFFSETS / 2),
        r"offsets are float32 of shape \[3\]; pass int32",
    ),
    "more experts than rows": (
        lambda: block_experts(X[:, :8], WEIGHT, STACKED, torch.tensor([0, 1, 2, 4])),
        "2 block rows are not those of 3 experts; give",
    ),
    "more matrices than experts": (
        lambda: dense_experts(X[:, :8], torch.ones(3, 8, 8), OFFSETS),
        r"weight \[3, 8, 8\] and 3 offsets do not belong together; pass",
    ),
    "a matrix for tokens of another width": (
        lambda: dense_experts(X[:, :8], torch.ones(2, 8, 9), OFFSETS),
        r"x \[4, 8\], weight \[2, 8, 9\] .* do not belong together; pass",
    ),
    "more blocks than the experts have": (
        lambda: block_experts(X[:, :8], torch.ones(9, 8, 8), STACKED, OFFSETS),
        "a weight of 9 packed blocks does not fit a topology of 2; pass",
    ),
    "candidates that are fractions": (
        lambda: block_gradient_norms(X, X, PLACES / 2, PLACES, (8, 8)),
        "candidate_rows is float32; pass",
    ),
    "blocks that do not divide": (
        lambda: block_gradient_norms(X, X, PLACES, PLACES, (7, 8)),
        "block 7 does not divide 16",
    ),
    "a block of one size": (lambda: block_gradient_norms(X, X, PLACES, PLACES, (8,)), "block_shape is .*; pass height"),  # type: ignore[arg-type]
    "other tokens": (lambda: block_gradient_norms(X, X[:3], PLACES, PLACES, (8, 8)), "4 tokens .* of 3 cannot be"),
    "a negative column in float64": (
        lambda: block_gradient_norms(X.double(), X.double(), PLACES, -PLACES, (8, 8)),
        r"block \(1, -1\) lies outside the 2 x 2 grid",
    ),
    "a negative column of a convolution": (
        lambda: block_conv2d_gradient_norms(IMAGES, IMAGES, PLACES, -PLACES, (8, 8), POINTWISE),
        r"block \(1, -1\) lies outside",
    ),
    "a row of an expert that is not there": (
        lambda: block_experts_gradient_norms(X[:, :8], X[:, :8], PLACES + 1, PLACES * 0, OFFSETS, (8, 8)),
        r"block \(2, 0\) lies outside the 2 x 1 grid",
    ),
}
"""Calls that used to read memory of others, to give other results than torch, or to end with a trace-back."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(AcfError, match=message) as error:
        call()
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("place", ["weight", "bias", "topology"])
def test_an_operand_without_values_beside_a_real_input_is_refused(place: str) -> None:
    layer = MlpLayer(WEIGHT, TOPOLOGY, torch.ones(16))
    operands = layer._asdict() | {"topology": TOPOLOGY._replace(block_cols=TOPOLOGY.block_cols.to("meta"))}
    operands |= {name: operands[name].to("meta") for name in ("weight", "bias")}
    broken = layer._replace(**{place: operands[place]})
    with pytest.raises(AcfError, match=r"on cpu and another on meta, .* load_state_dict"):
        block_linear(X, broken.weight, broken.topology, broken.bias)
    with pytest.raises(AcfError, match="on cpu and another on meta"):
        block_mlp(X, layer, broken)


def test_an_input_without_values_gives_the_shape_of_the_output() -> None:
    y = block_linear(X.to("meta"), WEIGHT, TOPOLOGY)
    assert y.device.type == "meta"
    assert y.shape == (4, 16)
