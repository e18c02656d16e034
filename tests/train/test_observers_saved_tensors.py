"""Layers are known by identity: copies of what a graph saved are observed, copies of a layer are not."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from acf.masks import BlockDST
from acf.nn import BlockSparsity, sparsify_
from acf.ops import observe_weight_grad, stop_observing
from acf.train import attach

EVERY_STEP = BlockDST(total_steps=100, every=1, fraction=0.5, schedule="constant")


def sparse_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Unflatten(1, (16, 1, 1)), nn.Conv2d(16, 16, 1))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    return model


def moved_blocks(model: nn.Module, forward: nn.Module, hooks) -> list[int]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = attach(model, optimizer, EVERY_STEP)
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    with hooks():
        loss = forward(x).square().sum()
    loss.backward()
    optimizer.step()
    controller.detach()
    return [change.moved_blocks for change in controller.changes]


HOOKS = {
    "save_on_cpu": save_on_cpu,
    "hooks that copy": lambda: saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor.clone()),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS.keys())
def test_blocks_move_where_hooks_replace_the_saved_tensors(hooks, compiled):
    torch._dynamo.reset()
    model, plain = sparse_model(), sparse_model()
    forward = torch.compile(model, backend="aot_eager") if compiled else model
    found = moved_blocks(model, forward, hooks)
    assert len(found) == 2
    assert min(found) > 0
    assert found == moved_blocks(plain, plain, lambda: torch.enable_grad())
    assert torch.equal(model[0].mask(), plain[0].mask())


class Count:
    def __init__(self) -> None:
        self.calls = 0

    def add(self, output_grad: Tensor, x: Tensor) -> None:
        self.calls += 1


def test_a_copy_of_an_observed_layer_is_not_observed():
    model, observer = sparse_model(), Count()
    twin = copy.deepcopy(model)
    observe_weight_grad(model[0].identity, observer)
    twin(torch.randn(2, 16)).sum().backward()
    assert observer.calls == 0
    model(torch.randn(2, 16)).sum().backward()
    assert observer.calls == 1
    stop_observing(model[0].identity)
    model(torch.randn(2, 16)).sum().backward()
    assert observer.calls == 1


def test_layers_of_one_shape_share_a_compiled_graph_and_are_told_apart():
    torch._dynamo.reset()
    graphs: list[object] = []

    def backend(graph, inputs):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16)) for _ in range(4)))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    observers = [Count() for _ in model]
    for layer, observer in zip(model, observers, strict=True):
        layer.compile(backend=backend)
        observe_weight_grad(layer[0].identity, observer)
    model(torch.randn(2, 16, requires_grad=True)).sum().backward()
    assert [observer.calls for observer in observers] == [1, 1, 1, 1]
    assert len(graphs) == 1


def test_only_gradients_of_the_loss_are_observed():
    model, observer = sparse_model(), Count()
    observe_weight_grad(model[0].identity, observer)
    x = torch.randn(2, 16, requires_grad=True)
    (x_grad,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    before = observer.calls
    x_grad.square().sum().backward()
    assert observer.calls == before + 1
