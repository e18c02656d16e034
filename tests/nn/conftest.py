"""The oracles of the layer tests: a dense model with the absent blocks set to zero by hand, and torch's own layers."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from acf.masks import Move
from acf.nn import LAYER_KINDS, BlockSparseLayer, BlockSparsity, sparsify_
from acf.nn.attention import PROJECTIONS
from acf.ops import observe_weight_grad, stop_observing
from acf.sparse import matrix_to_conv_weight


def _masked_dense(dense_model: nn.Module, sparse_model: nn.Module) -> nn.Module:
    """A copy of ``dense_model`` whose weights are zero in the blocks ``sparse_model`` does not have."""
    masked = copy.deepcopy(dense_model)
    for name, layer in sparse_model.named_modules():
        if isinstance(layer, BlockSparseLayer):
            height, width = layer.block_shape
            elements = layer.mask().repeat_interleave(height, 0).repeat_interleave(width, 1)
            weight = _weight_of(masked, name)
            if weight.dim() == 4:
                elements = matrix_to_conv_weight(elements, tuple(weight.shape[2:]))
            with torch.no_grad():
                weight.mul_(elements)
    return masked


def _weight_of(model: nn.Module, name: str) -> torch.Tensor:
    """The weight of a dense layer; of a projection of attention, its part of the packed weight."""
    owner, _, part = name.rpartition(".")
    attention = model.get_submodule(owner)
    if isinstance(attention, nn.MultiheadAttention) and part in PROJECTIONS:
        return attention.in_proj_weight.data.chunk(3)[PROJECTIONS.index(part)]
    return model.get_submodule(name).weight


@pytest.fixture
def masked_dense() -> Callable[[nn.Module, nn.Module], nn.Module]:
    return _masked_dense


def _assert_computes_like_dense(dense: nn.Module, x: torch.Tensor, block: tuple[int, int] = (2, 4)) -> nn.Module:
    """Sparsify ``dense`` in float64 and compare outputs and all gradients with torch's layer, before and after a move.

    ``block`` is (outputs, inputs). Returns the model that holds the sparse layer.
    """
    model = nn.Sequential(dense.double())
    sparsify_(model, BlockSparsity(sparsity=0.5, block=block))
    for _ in range(2):
        _assert_same_gradients(model[0], model[0].to_dense(), x.double())
        _move_some_blocks(model[0])
    return model


def _assert_same_gradients(layer: BlockSparseLayer, dense: nn.Module, x: torch.Tensor) -> None:
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [module(each) for module, each in zip((layer, dense), inputs, strict=True)]
    output_grad = torch.randn_like(outputs[1])
    leaves = [[each, module.weight, module.bias] for each, module in zip(inputs, (layer, dense), strict=True)]
    (x_grad, packed_grad, bias_grad), expected = (
        torch.autograd.grad(y, each, output_grad) for y, each in zip(outputs, leaves, strict=True)
    )
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(x_grad, expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(bias_grad, expected[2], rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        dense.weight.copy_(expected[1])
    matrix = LAYER_KINDS[layer.kind_name].weight_matrix(dense)
    expected_blocks = layer.layout.pack(matrix, layer.block_rows, layer.block_cols)
    torch.testing.assert_close(packed_grad, expected_blocks, rtol=1e-11, atol=1e-11)
    rows, cols = torch.nonzero(torch.ones_like(layer.mask()), as_tuple=True)
    scores = _observed_norms(layer, x, output_grad, rows, cols)
    torch.testing.assert_close(scores, layer.layout.block_norms(matrix).flatten(), rtol=1e-5, atol=1e-6)


def _observed_norms(
    layer: BlockSparseLayer, x: torch.Tensor, output_grad: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor
) -> torch.Tensor:
    """Gradient norms of the named blocks, from the operands that the layer hands to its observer."""
    operands: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Observer:
        def add(self, output_grad: torch.Tensor, x: torch.Tensor) -> None:
            operands.append((output_grad, x))

    observer = Observer()
    observe_weight_grad(layer.identity, observer)
    layer(x).backward(output_grad)
    stop_observing(layer.identity)
    layer.zero_grad()
    assert len(operands) == 1
    assert layer.input_squares(operands[0][1]).shape == (layer.input_count,)
    return layer.gradient_norms(*operands[0], rows, cols)


def _move_some_blocks(layer: BlockSparseLayer) -> None:
    """Give a third of the slots to absent blocks, and all blocks new weights."""
    rows, cols = torch.nonzero(~layer.mask(), as_tuple=True)
    count = max(1, layer.present_blocks // 3)
    chosen = torch.randperm(rows.numel())[:count]
    layer.move_blocks(Move(torch.randperm(layer.present_blocks)[:count], rows[chosen], cols[chosen]))
    with torch.no_grad():
        layer.weight.normal_()


@pytest.fixture
def computes_like_dense() -> Callable[..., nn.Module]:
    return _assert_computes_like_dense
