"""What holds for every kind of layer: it trains under every policy, moves, compiles, is saved, loaded and captured."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import acf
from acf.lowering import dense_macs, effectual_macs
from acf.nn import LAYER_KINDS, block_sparse_layers

LAYERS = {
    "linear": (lambda: nn.Linear(8, 12), (5, 8)),
    "conv1d": (lambda: nn.Conv1d(8, 12, 3, stride=2, padding=1), (2, 8, 7)),
    "conv2d": (lambda: nn.Conv2d(8, 12, (3, 2), stride=2, padding=1), (2, 8, 5, 6)),
    "conv3d": (lambda: nn.Conv3d(8, 12, (2, 3, 1), stride=(2, 1, 1), padding=1), (2, 8, 4, 3, 3)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(8, 12, 3, stride=2, output_padding=1), (2, 8, 3, 4)),
}
POLICIES = {
    "gradient": acf.BlockDST(total_steps=8, every=1),
    "input-aware": acf.BlockDST(total_steps=8, every=1, score="input_aware"),
    "random": acf.SET(total_steps=8, every=1),
}
SPEC = acf.BlockSparsity(0.5, block=4)


@pytest.fixture(params=LAYERS)
def layer(request):
    """A dense model of one layer and an activation, and an input of it."""
    make, shape = LAYERS[request.param]
    torch.manual_seed(0)
    return nn.Sequential(make(), nn.ReLU()), torch.randn(shape)


def train(model: nn.Module, x: torch.Tensor, policy: Any, steps: int = 4) -> Any:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    controller = acf.attach(model, optimizer, policy)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return controller


def test_every_kind_of_torch_is_tried_here():
    assert set(LAYERS) == {name for name, kind in LAYER_KINDS.items() if kind.of_torch}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_blocks_move_under_every_policy_and_the_layer_computes_what_its_dense_form_does(layer, policy):
    model, x = layer
    acf.sparsify_(model, SPEC)
    controller = train(model, x, policy)
    assert any(change.moved_blocks for change in controller.changes)
    assert controller.sparsity == 0.5
    controller.detach()
    y = model(x)
    torch.testing.assert_close(acf.densify_(model)(x), y)


def test_a_dense_start_is_pruned_to_its_target(layer):
    model, x = layer
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=4, init="dense"))
    controller = train(model, x, acf.BlockDST(total_steps=8, every=2))
    assert controller.sparsity == 0.5
    assert next(iter(block_sparse_layers(model).values())).density == 0.5


def test_a_checkpoint_and_a_file_give_the_moved_layer_back(layer, tmp_path):
    model, x = layer
    dense = copy.deepcopy(model)
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=(4, 2)))
    train(model, x, POLICIES["gradient"])
    other = copy.deepcopy(dense)
    acf.sparsify_(other, acf.BlockSparsity(0.5, block=(4, 2)))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))
    acf.save_sparse(model, tmp_path / "model.safetensors")
    assert torch.equal(acf.load_sparse(tmp_path / "model.safetensors")(x), model(x))
    assert torch.equal(acf.load_sparse(tmp_path / "model.safetensors", dense)(x), model(x))


@pytest.mark.parametrize("layer", ["conv1d", "conv3d", "conv_transpose2d"], indirect=True)
def test_a_compiled_layer_is_one_graph_with_the_gradients_of_the_eager_one(layer):
    model, x = layer
    acf.sparsify_(model, SPEC)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    gradients = []
    for each in (model, compiled):
        leaf = x.clone().requires_grad_()
        gradients.append(torch.autograd.grad(each(leaf).square().sum(), [leaf, *model.parameters()]))
    for eager, graph in zip(*gradients, strict=True):
        torch.testing.assert_close(graph, eager)


def test_under_autocast_a_layer_computes_in_bfloat16_and_keeps_float32_gradients(layer):
    model, x = layer
    acf.sparsify_(model, SPEC)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, expected = model[0](x), model[0].to_dense()(x)
    assert y.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=2**-6, atol=2**-6)
    y.sum().backward()
    assert model[0].weight.grad.dtype == model[0].bias.grad.dtype == torch.float32


def test_a_trace_holds_as_many_products_of_the_sparse_layer_as_of_the_dense_one(layer):
    model, x = layer
    macs = []
    for _ in range(2):
        with acf.capture(model) as trace:
            model(x.clone().requires_grad_()).square().sum().backward()
        assert sorted(op.phase for op in trace.ops) == ["forward", "input_grad", "weight_grad"]
        macs.append((dense_macs(trace), effectual_macs(trace)))
        if len(macs) == 1:
            acf.sparsify_(model, SPEC)
    (dense, dense_effectual), (sparse, sparse_effectual) = macs
    assert dense == sparse
    assert sparse_effectual < 0.7 * dense_effectual


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_forward_mode_and_second_derivatives_are_those_of_the_dense_form(layer):
    model, x = layer
    acf.sparsify_(model.double(), SPEC)
    x = x.double()
    tangents = [torch.func.jvp(each, (x,), (x.cos(),))[1] for each in (model[0], model[0].to_dense())]
    torch.testing.assert_close(*tangents)
    products = [
        torch.autograd.functional.hvp(lambda v, each=each: each(v).pow(3).sum(), x, x.sin())[1]
        for each in (model[0], model[0].to_dense())
    ]
    torch.testing.assert_close(*products)


def test_a_layer_of_the_meta_device_gets_values_and_topology_from_a_checkpoint(layer):
    model, x = layer
    empty = copy.deepcopy(model).to("meta")
    for each in (model, empty):
        acf.sparsify_(each, SPEC)
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(x), model(x))


def test_a_plan_times_the_layer_and_the_model_stays_dense(layer):
    model, x = layer
    planned = acf.plan(model, x, SPEC)
    assert [each.name for each in planned.layers] == ["0"]
    assert not block_sparse_layers(model)
