"""Linear layers of experts: what the sparse layer computes, stores and refuses."""

import copy

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.masks import SET, BlockDST, GradualPruning
from acf.nn import (
    BlockSparseExpertLinear,
    BlockSparsity,
    ExpertLinear,
    Experts,
    block_sparse_layers,
    load_sparse,
    save_sparse,
    sparsify_,
    weight_sparsity,
)
from acf.train import attach, ema

SPEC = BlockSparsity(sparsity=0.75, block=4)
POLICIES = {
    "SET": SET(total_steps=100, every=1),
    "gradient": BlockDST(total_steps=100, every=1),
    "input-aware": BlockDST(total_steps=100, every=1, score="input_aware"),
}


def experts_model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"moe": Experts(experts=4, hidden_features=8, intermediate_features=16)})


def routed() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Nine tokens with two experts each, none with the last; their weights."""
    generator = torch.Generator().manual_seed(1)
    chosen = torch.stack([torch.randperm(3, generator=generator)[:2] for _ in range(9)])
    return torch.randn(9, 8, generator=generator), chosen, torch.rand(9, 2, generator=generator)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("offsets", [[0, 3, 3, 7], [0, 0, 0, 7], [0, 1, 2, 5]])
def test_a_sparse_layer_computes_what_its_dense_form_does(bias, offsets):
    model = nn.Sequential(ExpertLinear(3, 8, 12, bias=bias))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4, distribution="balanced"))
    x, bounds = torch.randn(7, 8), torch.tensor(offsets)
    y = model[0](x, bounds)
    dense = model[0].to_dense()
    torch.testing.assert_close(y, dense(x, bounds))
    assert not y[offsets[-1] :].any()
    assert y[: offsets[-1]].any()
    assert type(dense) is ExpertLinear


def test_blocks_are_counted_over_all_experts_and_none_lies_in_two():
    model = experts_model()
    summary = sparsify_(model, SPEC)
    assert [(layer.name, layer.block_count, layer.present_blocks) for layer in summary.sparse] == [
        ("moe.gate_up_proj", 4 * 8 * 2, 16),
        ("moe.down_proj", 4 * 2 * 4, 8),
    ]
    assert summary.left_dense == ()
    assert summary.model_sparsity == weight_sparsity(model) == 0.75
    odd = nn.Sequential(ExpertLinear(4, 8, 6))  # 24 rows in all
    with pytest.raises(SparsityError, match="block 4 does not divide out_features 6 of layer '0'"):
        sparsify_(odd, SPEC)
    assert type(odd[0]) is ExpertLinear


def test_each_expert_counts_as_a_layer_of_its_own_for_erk():
    experts, single = nn.Sequential(ExpertLinear(4, 32, 32), nn.Linear(64, 64)), nn.Sequential()
    for index in range(4):
        single.add_module(str(index), nn.Linear(32, 32))
    single.add_module("4", nn.Linear(64, 64))
    spec = BlockSparsity(sparsity=0.75, block=4, distribution="erk")
    density, *_ = (layer.density for layer in sparsify_(experts, spec).sparse)
    assert density == pytest.approx(sparsify_(single, spec).sparse[0].density, abs=0.5 / 64)  # of 64 blocks each


def train(model: nn.Module, policy, steps: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    controller = attach(model, optimizer, policy)
    x, chosen, weights = routed()
    for _ in range(steps):
        optimizer.zero_grad()
        model["moe"](x, chosen, weights).square().mean().backward()
        optimizer.step()
    return controller


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_blocks_move_and_the_others_stay_where_they_are_with_their_values(policy):
    model = experts_model()
    sparsify_(model, SPEC)
    layer = model["moe"].gate_up_proj
    controller = attach(model, torch.optim.SGD(model.parameters(), lr=0.0), policy)
    before, mask = layer.weight_matrix().detach(), layer.mask()
    x, chosen, weights = routed()
    model["moe"](x, chosen, weights).square().mean().backward()
    controller.optimizer.step()
    assert sum(change.moved_blocks for change in controller.changes) > 0
    stayed = (mask & layer.mask()).repeat_interleave(4, 0).repeat_interleave(4, 1)
    after = layer.weight_matrix().detach()
    assert torch.equal(after[stayed], before[stayed])
    assert not after[~stayed].any()
    assert layer.present_blocks == 16


def test_blocks_grow_where_the_expert_s_own_tokens_have_the_greatest_gradient():
    layer_model = nn.Sequential(ExpertLinear(2, 8, 8))
    sparsify_(layer_model, BlockSparsity(sparsity=0.5, block=4))
    layer = layer_model[0]
    x, output_grad, offsets = torch.randn(6, 8), torch.randn(6, 8), torch.tensor([0, 4, 6])
    rows, cols = torch.tensor([0, 3]), torch.tensor([1, 0])
    norms = layer.gradient_norms(output_grad, x, rows, cols, offsets)
    of_first, of_second = output_grad[:4].T @ x[:4], output_grad[4:].T @ x[4:]
    expected = torch.stack([of_first[:4, 4:].norm(), of_second[4:, :4].norm()])
    torch.testing.assert_close(norms, expected)


@pytest.mark.parametrize("policy", [BlockDST, GradualPruning])
def test_a_dense_start_is_pruned_to_its_target(policy):
    model = experts_model()
    sparsify_(model, BlockSparsity(sparsity=0.75, block=4, init="dense"))
    assert weight_sparsity(model) == 0.0
    train(model, policy(total_steps=8, every=2), steps=8)
    assert weight_sparsity(model) == 0.75
    layer, x = model["moe"].down_proj, torch.randn(5, 16)
    assert layer.present_blocks == 8
    torch.testing.assert_close(
        layer(x, torch.tensor([0, 1, 1, 4, 5])), layer.to_dense()(x, torch.tensor([0, 1, 1, 4, 5]))
    )


def test_a_saved_model_loads_with_its_blocks_and_an_average_follows_them(tmp_path):
    model = experts_model()
    sparsify_(model, SPEC)
    average = ema(model, decay=0.5)
    train(model, SET(total_steps=20, every=2), steps=4)
    average.update_parameters(model)
    x, chosen, weights = routed()
    torch.testing.assert_close(average.module["moe"](x, chosen, weights), model["moe"](x, chosen, weights))
    save_sparse(model, tmp_path / "model.safetensors")
    loaded = load_sparse(tmp_path / "model.safetensors", experts_model())
    assert type(loaded["moe"].down_proj) is BlockSparseExpertLinear
    assert torch.equal(loaded["moe"](x, chosen, weights), model["moe"](x, chosen, weights))
    fresh = experts_model()
    sparsify_(fresh, SPEC)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh["moe"](x, chosen, weights), model["moe"](x, chosen, weights))


def test_autocast_computes_in_its_dtype_with_float32_gradients():
    model = nn.Sequential(ExpertLinear(3, 8, 12))
    sparsify_(model, SPEC)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model[0](torch.randn(7, 8), torch.tensor([0, 3, 3, 7]))
    y.float().sum().backward()
    assert y.dtype is torch.bfloat16
    assert model[0].weight.grad.dtype is torch.float32


def test_a_graph_compiled_once_serves_every_routing_and_topology():
    model = experts_model()
    sparsify_(model, SPEC)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(copy.deepcopy(model)["moe"], backend=count, fullgraph=True)
    x, chosen, weights = routed()
    torch.testing.assert_close(compiled(x, chosen, weights), model["moe"](x, chosen, weights))
    torch.testing.assert_close(compiled(x, 3 - chosen, weights), model["moe"](x, 3 - chosen, weights))
    assert len(graphs) == 1


def test_tokens_without_offsets_are_divided_evenly():
    model = nn.Sequential(ExpertLinear(3, 8, 12))
    sparsify_(model, SPEC)
    x = torch.randn(7, 8)
    torch.testing.assert_close(model[0](x[:6]), model[0](x[:6], torch.tensor([0, 2, 4, 6])))
    torch.testing.assert_close(model[0](x), model[0](x, torch.tensor([0, 2, 4, 7])))


def test_a_hook_on_the_gradient_of_the_weight_is_not_lost_in_silence():
    model = experts_model()
    model["moe"].down_proj.weight.register_hook(lambda gradient: gradient)
    with pytest.raises(SparsityError, match=r"moe.down_proj.weight has a hook on its gradient"):
        sparsify_(model, SPEC)
    assert not block_sparse_layers(model)
