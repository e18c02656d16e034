"""Schema, fake and autograd rules of every custom op, by torch's own checker."""

from typing import Any

import pytest
import torch

from acf.gradients import RULES
from acf.ops import Conv2dGeometry
from acf.ops.semi_structured.libraries import LIBRARIES, Library, cutlass_compress
from acf.ops.semi_structured.product import reference_prune
from acf.sparse import BlockLayout, BlockTopology

LINEAR_TOPOLOGY = BlockTopology.build(BlockLayout(8, 12, 4, 3), torch.tensor([1, 0, 1]), torch.tensor([3, 0, 1]))
SECOND_TOPOLOGY = BlockTopology.build(BlockLayout(4, 8, 4, 4), torch.tensor([0, 0]), torch.tensor([1, 0]))
PADDED = Conv2dGeometry((3, 3), padding=(1, 1))
UNEVEN = Conv2dGeometry((3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2))
ONE_TAP = Conv2dGeometry((1, 1))


def conv_topology(geometry: Conv2dGeometry) -> BlockTopology:
    """Three blocks of a convolution from 8 to 8 channels with 4 x 2 blocks."""
    taps = geometry.kernel_size[0] * geometry.kernel_size[1]
    layout = BlockLayout(8, 8 * taps, 4, 2)
    return BlockTopology.build(layout, torch.tensor([1, 0, 1]), torch.tensor([3, 0, 1]))


def linear_samples(dtype: torch.dtype) -> dict[str, tuple[Any, ...]]:
    x, output_grad, weight = (torch.randn(shape, dtype=dtype) for shape in ((5, 12), (5, 8), (3, 4, 3)))
    trainable_x, trainable_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    trainable_bias = torch.randn(8, requires_grad=True)
    pair = (list(LINEAR_TOPOLOGY), list(LINEAR_TOPOLOGY))
    candidates = (torch.tensor([0, 1], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32))
    both_layers = (weight, None, torch.randn(2, 4, 4, dtype=dtype), torch.randn(4, dtype=dtype), "relu")
    both_layers += (list(LINEAR_TOPOLOGY), list(SECOND_TOPOLOGY))
    return {
        "block_linear": (trainable_x, trainable_weight, trainable_bias, *LINEAR_TOPOLOGY),
        "block_linear_forward": (x, weight, None, *LINEAR_TOPOLOGY),
        "block_linear_input_grad": (output_grad, weight, *LINEAR_TOPOLOGY),
        "block_linear_weight_grad": (output_grad, x, *LINEAR_TOPOLOGY, torch.float32),
        "block_linear_weight_and_bias_grad": (output_grad, x, *LINEAR_TOPOLOGY, dtype, torch.float32),
        "bias_grad": (output_grad, torch.float32),
        "block_gradient_norms": (output_grad, x, *candidates, [4, 3]),
        "block_scores": (output_grad, x, [2, 4], [4, 3], [], False),
        "probed": (output_grad.clone().requires_grad_(), x, torch.zeros(2, 4, requires_grad=True), [4, 3], [], False),
        "block_linear_activation": (x, weight, torch.randn(8, dtype=dtype), "silu", False, *LINEAR_TOPOLOGY),
        "block_linear_scaled_input_grad": (output_grad, weight, x, *LINEAR_TOPOLOGY),
        "block_linear_gated": (x, weight, weight, None, torch.randn(8, dtype=dtype), "silu", True, *pair),
        "block_linear_gated_input_grad": (output_grad, weight, x, x.flip(0), *LINEAR_TOPOLOGY),
        "block_linear_pair_input_grad": (output_grad, output_grad.flip(0), weight, weight, *pair),
        "block_gated_mlp": (
            trainable_x,
            trainable_weight,
            None,
            torch.randn_like(trainable_weight).requires_grad_(),
            torch.randn(8, requires_grad=True),
            torch.randn(2, 4, 4, dtype=dtype, requires_grad=True),
            None,
            *pair,
            list(SECOND_TOPOLOGY),
            "silu",
        ),
        "block_mlp_forward": (x.view(1, 5, 12), *both_layers),
        "block_mlp_backward": (
            torch.randn(1, 5, 4, dtype=dtype),
            x.view(1, 5, 12),
            output_grad.flatten(),
            *both_layers,
        ),
        "block_mlp": (
            trainable_x,
            trainable_weight,
            None,
            torch.randn(2, 4, 4, dtype=dtype, requires_grad=True),
            torch.randn(4, requires_grad=True),
            list(LINEAR_TOPOLOGY),
            list(SECOND_TOPOLOGY),
            "gelu",
        ),
    }


def conv_samples(
    geometry: Conv2dGeometry, dtype: torch.dtype, memory_format: torch.memory_format = torch.contiguous_format
) -> dict[str, tuple[Any, ...]]:
    topology, lists = conv_topology(geometry), geometry.as_lists()
    x = torch.randn(2, 8, 6, 5, dtype=dtype).to(memory_format=memory_format)
    output_grad = torch.randn(2, 8, *geometry.output_size(6, 5), dtype=dtype).to(memory_format=memory_format)
    weight = torch.randn(3, 4, 2, dtype=dtype)
    trainable_x, trainable_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    trainable_bias = torch.randn(8, requires_grad=True)
    candidates = (torch.tensor([0, 1], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32))
    return {
        "block_conv2d": (trainable_x, trainable_weight, trainable_bias, *topology, *lists),
        "block_conv2d_forward": (x, weight, None, *topology, *lists),
        "block_conv2d_for_batch_norm": (trainable_x, trainable_weight, trainable_bias, *topology, *lists),
        "block_conv2d_statistics": (x, weight, None, *topology, *lists),
        "batch_norm_after_conv2d": (trainable_x, trainable_bias, None, [torch.zeros(8), torch.ones(8)], 0.1, 1e-5),
        "block_conv2d_input_grad": (output_grad, weight, *topology, list(x.shape), *lists),
        "block_conv2d_weight_grad": (output_grad, x, *topology, *lists, torch.float32),
        "block_conv2d_gradient_norms": (output_grad, x, *candidates, [4, 2], *lists),
        "block_conv_transpose2d": (
            *(output_grad.clone().requires_grad_(), trainable_weight, trainable_bias),
            *(*topology, *lists, [0, 0]),
        ),
        "block_conv_transpose2d_weight_grad": (x, output_grad, *topology, *lists, torch.float32),
    }


EXPERTS = BlockTopology.build(BlockLayout(16, 6, 4, 3, stacked=2), torch.tensor([3, 0, 1]), torch.tensor([1, 0, 1]))


def experts_samples(dtype: torch.dtype) -> dict[str, tuple[Any, ...]]:
    """Two experts of 8 x 6 weights, the first with two of seven tokens, the second with four."""
    x, output_grad, weight = (torch.randn(shape, dtype=dtype) for shape in ((7, 6), (7, 8), (3, 4, 3)))
    trainable_x, trainable_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    offsets, matrices = torch.tensor([0, 2, 6], dtype=torch.int32), torch.randn(2, 8, 6, dtype=dtype)
    candidates = (torch.tensor([0, 3], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32))
    return {
        "block_experts": (trainable_x, trainable_weight, *EXPERTS, offsets),
        "block_experts_forward": (x, weight, *EXPERTS, offsets),
        "block_experts_input_grad": (output_grad, weight, *EXPERTS, offsets),
        "block_experts_weight_grad": (output_grad, x, *EXPERTS, offsets, torch.float32),
        "block_experts_gradient_norms": (output_grad, x, *candidates, offsets, [4, 3]),
        "dense_experts": (trainable_x, matrices.clone().requires_grad_(), offsets),
        "dense_experts_forward": (x, matrices, offsets),
        "dense_experts_weight_grad": (output_grad, x, offsets, torch.float32),
    }


EXPERTS_OPS = list(experts_samples(torch.float32))
LINEAR_OPS = [
    "block_linear",
    "block_linear_forward",
    "block_linear_input_grad",
    "block_linear_weight_grad",
    "block_linear_weight_and_bias_grad",
    "bias_grad",
    "block_gradient_norms",
    "block_scores",
    "probed",
    "block_linear_activation",
    "block_linear_scaled_input_grad",
    "block_linear_gated",
    "block_linear_gated_input_grad",
    "block_linear_pair_input_grad",
    "block_gated_mlp",
    "block_mlp",
    "block_mlp_forward",
    "block_mlp_backward",
]
CONV_OPS = [
    "block_conv2d",
    "block_conv2d_forward",
    "block_conv2d_for_batch_norm",
    "block_conv2d_statistics",
    "batch_norm_after_conv2d",
    "block_conv2d_input_grad",
    "block_conv2d_weight_grad",
    "block_conv2d_gradient_norms",
    "block_conv_transpose2d",
    "block_conv_transpose2d_weight_grad",
]
SEMI_STRUCTURED_OPS = ["semi_structured_prune", "semi_structured_compress", "semi_structured_linear"]


def check(name: str, sample: tuple[Any, ...]) -> None:
    torch.library.opcheck(getattr(torch.ops.acf, name).default, sample)


def test_every_registered_op_is_checked_here():
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("acf::")}
    names = [*LINEAR_OPS, *CONV_OPS, *EXPERTS_OPS, *SEMI_STRUCTURED_OPS, "sparsify_gradient"]
    assert registered == {f"acf::{name}" for name in names}


@pytest.mark.parametrize("name", LINEAR_OPS)
def test_linear_ops_keep_their_schema_fake_and_autograd_rules(name):
    check(name, linear_samples(torch.float32)[name])


# The checker traces forward and backward pass of those that train, and with them the ops that these are made of.
@pytest.mark.parametrize("name", ["block_linear", "block_mlp", "block_gated_mlp", "probed", "block_gradient_norms"])
def test_linear_ops_keep_their_rules_in_float64(name):
    check(name, linear_samples(torch.float64)[name])


@pytest.mark.parametrize("name", EXPERTS_OPS)
def test_ops_of_experts_keep_their_schema_fake_and_autograd_rules(name):
    check(name, experts_samples(torch.float32)[name])


@pytest.mark.parametrize(
    ("geometry", "memory_format"),
    [
        pytest.param(PADDED, torch.contiguous_format, id="padded"),
        pytest.param(UNEVEN, torch.channels_last, id="uneven, channels last"),
    ],
)
@pytest.mark.parametrize("name", CONV_OPS)
def test_convolution_ops_keep_their_schema_fake_and_autograd_rules(name, geometry, memory_format):
    check(name, conv_samples(geometry, torch.float32, memory_format)[name])


@pytest.mark.parametrize(
    "name", ["block_conv2d", "block_conv2d_for_batch_norm", "block_conv_transpose2d", "block_conv2d_gradient_norms"]
)
def test_convolution_ops_of_one_tap_keep_their_rules(name):
    check(name, conv_samples(ONE_TAP, torch.float32, torch.channels_last)[name])


@pytest.mark.parametrize("name", ["block_conv2d", "block_conv_transpose2d", "block_conv2d_gradient_norms"])
def test_convolution_ops_keep_their_rules_in_float64(name):
    check(name, conv_samples(PADDED, torch.float64)[name])


def test_a_linear_op_keeps_its_rules_for_an_input_that_is_not_contiguous():
    x = torch.randn(12, 5).T.requires_grad_()
    check("block_linear", (x, torch.randn(3, 4, 3, requires_grad=True), None, *LINEAR_TOPOLOGY))


@pytest.mark.parametrize("name", SEMI_STRUCTURED_OPS)
def test_semi_structured_ops_keep_their_schema_and_fake(name, monkeypatch):
    dense_copy = Library(cutlass_compress, lambda x, packed: x @ packed[:, : x.shape[1]].T)
    monkeypatch.setitem(LIBRARIES, "cutlass", dense_copy)
    pruned = reference_prune(torch.randn(64, 128), "inputs", False, False, torch.bfloat16)
    samples = {
        "semi_structured_prune": (torch.randn(8, 12), "tiles", False, True, torch.bfloat16),
        "semi_structured_compress": (pruned, "cutlass"),
        "semi_structured_linear": (torch.randn(5, 72).bfloat16(), cutlass_compress(pruned).nan_to_num(), "cutlass"),
    }
    check(name, samples[name])


GRADIENTS = {
    "contiguous": lambda: torch.randn(2, 8, 6, 5),
    "channels last": lambda: torch.randn(2, 8, 6, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(12, 5).T,
    "expanded": lambda: torch.ones(()).expand(4, 3),
    "empty": lambda: torch.ones(0, 3),
}


@pytest.mark.parametrize("make_gradient", GRADIENTS.values(), ids=GRADIENTS.keys())
@pytest.mark.parametrize("method", RULES)
def test_the_gradient_op_keeps_its_rules_for_every_layout(method, make_gradient):
    state = (torch.tensor(0.1), torch.tensor(0.0), torch.tensor(1))
    check("sparsify_gradient", (make_gradient(), *state, method, 0.5, 0))
