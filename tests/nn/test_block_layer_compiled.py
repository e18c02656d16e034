"""Sparse layers under `torch.compile`: one graph, which stays valid while blocks move."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from acf.masks import Move
from acf.nn import BlockSparseLayer, BlockSparsity, block_sparse_layers, sparsify_

MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), (3, 8)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()), (2, 8, 5, 5)),
    "reflect": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")), (2, 8, 5, 5)),
}


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def shift_blocks(layer: BlockSparseLayer) -> None:
    """Give every slot to a block that is absent, as far as there are any, with new random weights."""
    rows, cols = torch.nonzero(~layer.mask(), as_tuple=True)
    count = min(layer.present_blocks, rows.numel())
    layer.move_blocks(Move(torch.arange(count), rows[:count], cols[:count]))
    with torch.no_grad():
        layer.weight.normal_()


@pytest.mark.parametrize(("make_model", "shape"), MODELS.values(), ids=MODELS.keys())
def test_a_sparse_model_compiles_to_one_graph_that_follows_the_topology_without_recompiling(make_model, shape):
    model = make_model()
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for _ in range(3):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), model(x))
        for layer in block_sparse_layers(model).values():
            shift_blocks(layer)
    assert counter.frame_count == 1


@pytest.mark.parametrize(("make_model", "shape"), MODELS.values(), ids=MODELS.keys())
def test_gradients_of_a_compiled_model_are_those_of_the_eager_one_after_blocks_moved(make_model, shape):
    model = make_model()
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        x = torch.randn(shape)
        compiled(x).square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(gradient, parameter.grad)
        model.zero_grad()
        for layer in block_sparse_layers(model).values():
            shift_blocks(layer)
