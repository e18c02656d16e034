"""Layers of the meta device: large models are built there, and get weights and topology from a checkpoint."""

import copy

import pytest
import torch
from torch import nn

from acf.errors import TopologyError
from acf.masks import BlockDST
from acf.nn import BlockSparsity, NMSparsity, block_sparse_layers, sparsify_
from acf.sparse import BlockTopology
from acf.train import attach

SPECS = {
    "uniform": BlockSparsity(sparsity=0.75, block=4),
    "balanced": BlockSparsity(sparsity=0.75, block=4, distribution="balanced"),
    "dense start": BlockSparsity(sparsity=0.75, block=4, init="dense"),
}


def dense_model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(8, 16, 3), nn.Flatten(), nn.Linear(16 * 4, 16))


def saved_model(spec: BlockSparsity) -> nn.Module:
    torch.manual_seed(1)
    model = dense_model()
    sparsify_(model, spec)
    return model


def meta_model(spec: BlockSparsity) -> nn.Module:
    with torch.device("meta"):
        model = dense_model()
        sparsify_(model, spec)
    return model


def assert_computes_the_same(model: nn.Module, saved: nn.Module) -> None:
    x = torch.randn(2, 8, 4, 4)
    assert torch.equal(model(x), saved(x))
    for name, layer in block_sparse_layers(model).items():
        fresh = BlockTopology.build(layer.layout, layer.block_rows, layer.block_cols)
        assert all(map(torch.equal, layer.topology, fresh)), name


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_model_made_sparse_on_the_meta_device_has_the_shapes_of_the_real_one(spec):
    model, saved = meta_model(spec), saved_model(spec)
    assert {name: value.shape for name, value in model.state_dict().items()} == {
        name: value.shape for name, value in saved.state_dict().items()
    }
    assert all(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
    assert model(torch.empty(2, 8, 4, 4, device="meta")).shape == (2, 16)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_assigning_a_checkpoint_to_a_model_of_the_meta_device_makes_the_outputs_equal(spec):
    saved, model = saved_model(spec), meta_model(spec)
    model.load_state_dict(copy.deepcopy(saved.state_dict()), assign=True)
    assert_computes_the_same(model, saved)


def test_assigning_a_checkpoint_to_a_real_model_that_went_to_the_meta_device_makes_the_outputs_equal():
    saved, model = saved_model(SPECS["uniform"]), saved_model(SPECS["uniform"]).to("meta")
    model.load_state_dict(copy.deepcopy(saved.state_dict()), assign=True)
    assert_computes_the_same(model, saved)


def test_a_checkpoint_of_a_dense_start_that_has_shrunk_is_assigned_to_a_model_of_the_meta_device():
    saved, model = saved_model(SPECS["dense start"]), meta_model(SPECS["dense start"])
    saved[2].keep_blocks(torch.arange(saved[2].target_blocks))
    model.load_state_dict(copy.deepcopy(saved.state_dict()), assign=True)
    assert_computes_the_same(model, saved)


def test_an_emptied_model_of_the_meta_device_refuses_to_compute_until_a_checkpoint_is_loaded():
    saved, model = saved_model(SPECS["uniform"]), meta_model(SPECS["uniform"]).to_empty(device="cpu")
    nn.init.normal_(model[2].weight)
    with pytest.raises(TopologyError, match="made on the meta device and has no topology yet; load a state_dict"):
        model(torch.randn(2, 8, 4, 4))
    with pytest.raises(TopologyError, match="no topology yet"):
        attach(model, torch.optim.SGD(model.parameters(), lr=0.1), BlockDST(total_steps=10, every=1))
    model.load_state_dict(saved.state_dict())
    assert_computes_the_same(model, saved)


def test_an_assigned_model_trains_and_moves_blocks_like_the_saved_one():
    saved, model = saved_model(SPECS["uniform"]), meta_model(SPECS["uniform"])
    model.load_state_dict(copy.deepcopy(saved.state_dict()), assign=True)
    for each in (saved, model):
        torch.manual_seed(3)
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        controller = attach(each, optimizer, BlockDST(total_steps=10, every=1, stop_at=1.0))
        for _ in range(3):
            optimizer.zero_grad()
            each(torch.randn(2, 8, 4, 4)).square().sum().backward()
            optimizer.step()
        assert any(change.moved_blocks for change in controller.changes)
    assert_computes_the_same(model, saved)


def test_emptying_a_real_model_drops_its_weights_and_keeps_its_topology():
    saved, model = saved_model(SPECS["uniform"]), saved_model(SPECS["uniform"])
    model.to_empty(device="cpu")
    for name, layer in block_sparse_layers(model).items():
        assert all(map(torch.equal, layer.topology, saved.get_submodule(name).topology)), name


def test_a_loader_that_assigns_tensor_by_tensor_gives_weights_topology_and_the_derived_indices():
    """Hugging Face's loader: what the file holds first, then uninitialised memory for buffers that it does not hold."""
    saved, model = saved_model(SPECS["uniform"]), meta_model(SPECS["uniform"])
    for name, value in saved.state_dict().items():
        parent, leaf = model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        setattr(parent, leaf, value.clone() if leaf in parent._buffers else nn.Parameter(value.clone()))
    for layer in block_sparse_layers(model).values():
        for leaf in layer._non_persistent_buffers_set:
            setattr(layer, leaf, torch.full_like(getattr(layer, leaf), 1 << 20))
    assert_computes_the_same(model, saved)


def test_a_model_with_masked_groups_is_built_on_the_meta_device_too():
    torch.manual_seed(0)
    saved = nn.Sequential(nn.Linear(16, 16))
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(16, 16))
        sparsify_(model, NMSparsity(2, 8))
    sparsify_(saved, NMSparsity(2, 8))
    emptied = copy.deepcopy(model).to_empty(device="cpu")
    emptied.load_state_dict(saved.state_dict())
    model.load_state_dict(saved.state_dict(), assign=True)
    x = torch.randn(3, 16)
    assert torch.equal(model(x), saved(x))
    assert torch.equal(emptied(x), saved(x))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_model_of_the_meta_device_starts_from_scratch_with_a_random_topology(spec):
    masks = []
    for seed in (0, 0, 1):
        model = meta_model(spec).to_empty(device="cpu")
        torch.manual_seed(seed)
        model[0].reset_parameters()
        model[2].reset_parameters()
        layer = model[2]
        masks.append(layer.mask())
        assert layer.present_blocks == (16 if layer.starts_dense else 4) * 4 == int(layer.mask().sum())
        assert 0.0 < layer.weight.abs().max() <= (64 * layer.density) ** -0.5  # rescaled, as fresh layers are
        assert layer.bias.abs().max() <= 64**-0.5
        if spec.distribution == "balanced":
            assert set(layer.mask().sum(1).tolist()) == {4}
        assert_computes_the_same(model, model)
    assert torch.equal(masks[0], masks[1])
    assert spec.init == "dense" or not torch.equal(masks[0], masks[2])


def test_weights_drawn_later_keep_the_variance_of_the_dense_layer():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(256, 256, bias=False))
        sparsify_(model, BlockSparsity(sparsity=0.75, block=16))
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    model[0].reset_parameters()
    assert float(model(torch.randn(512, 256)).detach().var()) == pytest.approx(1 / 3, rel=0.1)  # as of the dense layer


def test_drawing_weights_anew_keeps_the_topology_of_a_real_layer_and_leaves_one_of_the_meta_device_alone():
    model, before = saved_model(SPECS["uniform"]), saved_model(SPECS["uniform"])
    model[2].reset_parameters()
    assert torch.equal(model[2].mask(), before[2].mask())
    assert not torch.equal(model[2].weight, before[2].weight)
    meta = meta_model(SPECS["uniform"])
    meta[2].reset_parameters()
    assert meta[2].weight.is_meta


def test_masked_groups_of_the_meta_device_draw_their_weights_too():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(16, 16))
        sparsify_(model, NMSparsity(2, 8))
    model.to_empty(device="cpu")
    nn.init.zeros_(model[0].weight)
    model[0].reset_parameters()
    assert 0.0 < model[0].weight.abs().max() <= 0.25
    assert (model[0].forward_weight() != 0).sum() == 16 * 4
