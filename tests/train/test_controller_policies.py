"""Every policy in a real loop: what it changes, and what it leaves alone."""

import copy

import pytest
import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.masks import SET, BlockDST, GradualPruning, StaticTopology
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_, weight_sparsity
from acf.train import TopologyController, attach


def sparse_model(**spec) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 32), nn.ReLU(), nn.Linear(32, 16)
    )
    sparsify_(model, BlockSparsity(**{"sparsity": 0.75, "block": 4, **spec}))
    return model


def train(model: nn.Module, policy, steps: range, controller=None, optimizer=None) -> TopologyController:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    controller = controller or attach(model, optimizer, policy)
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        x, target = torch.randn(6, 8, 4, 4, generator=generator), torch.randn(6, 16, generator=generator)
        controller.optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        controller.optimizer.step()
    return controller


def masks(model: nn.Module) -> dict[str, Tensor]:
    return {name: layer.mask() for name, layer in block_sparse_layers(model).items()}


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> int:
    return sum(int((first[name] != second[name]).sum()) for name in first)


def test_a_static_topology_trains_the_weights_and_moves_nothing():
    model = sparse_model()
    before, weight = masks(model), model[3].weight.detach().clone()
    controller = train(model, StaticTopology(), range(8))
    assert differing(before, masks(model)) == 0
    assert controller.step == 8
    assert not torch.equal(model[3].weight, weight)


def test_set_drops_the_least_blocks_and_grows_others_at_the_same_sparsity():
    model = sparse_model()
    before, sparsity = masks(model), weight_sparsity(model)
    controller = train(model, SET(total_steps=20, every=4), range(4))
    assert [change.moved_blocks for change in controller.changes] == [2, 16, 2]  # 0.3 x 0.835 of 9, 64, 8
    assert differing(before, masks(model)) == 2 * (2 + 16 + 2)
    assert weight_sparsity(model) == sparsity


def test_set_grows_by_its_seed_and_not_by_torch_s_own_random_state():
    def trained(seed: int, torch_seed: int) -> dict[str, Tensor]:
        model = sparse_model()
        torch.manual_seed(torch_seed)
        train(model, SET(total_steps=20, every=2, seed=seed), range(6))
        return masks(model)

    assert differing(trained(seed=1, torch_seed=5), trained(seed=1, torch_seed=6)) == 0
    assert differing(trained(seed=1, torch_seed=5), trained(seed=2, torch_seed=5)) > 0


def test_set_leaves_a_layer_alone_that_took_no_part():
    model = nn.ModuleDict({"used": nn.Linear(16, 16), "idle": nn.Linear(16, 16)})
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, SET(total_steps=100, every=1))
    before = masks(model)
    model["used"](torch.randn(4, 16)).square().sum().backward()
    optimizer.step()
    assert {change.layer for change in controller.changes} == {"used"}
    assert torch.equal(model["idle"].mask(), before["idle"])


def test_a_resumed_set_run_is_the_uninterrupted_one():
    policy = SET(total_steps=40, every=3, seed=3)
    whole = sparse_model()
    train(whole, policy, range(20))
    first, second = sparse_model(), sparse_model(sparsity=0.75)
    controller = train(first, policy, range(11))
    optimizer = torch.optim.SGD(second.parameters(), lr=0.05, momentum=0.9)
    resumed = attach(second, optimizer, policy)
    second.load_state_dict(first.state_dict())
    optimizer.load_state_dict(controller.optimizer.state_dict())
    resumed.load_state_dict(controller.state_dict())
    train(second, policy, range(11, 20), resumed)
    for name, value in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], value), name


@pytest.mark.parametrize("policy", [BlockDST(40, every=2), SET(40, every=2)], ids=["BlockDST", "SET"])
@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_a_balanced_model_stays_balanced_while_its_blocks_move(policy, init):
    model = sparse_model(distribution="balanced", sparsity=0.7, init=init)
    before = masks(model)
    controller = train(model, policy, range(10))
    assert any(change.moved_blocks for change in controller.changes)
    for name, mask in masks(model).items():
        assert mask.sum(dim=1).max() - mask.sum(dim=1).min() <= 1
        assert abs(mask.float().mean() - 0.3) * mask.numel() <= 1
        assert not torch.equal(mask, before[name])


def test_a_policy_that_does_not_fit_the_start_is_refused():
    dense, sparse = sparse_model(init="dense"), sparse_model()
    with pytest.raises(SparsityError, match="0 starts with 36 blocks and a static topology would never prune it to 9"):
        attach(dense, torch.optim.SGD(dense.parameters(), lr=0.1), StaticTopology())
    with pytest.raises(SparsityError, match="0 starts with the 9 blocks it is to end with, so nothing would ever be"):
        attach(sparse, torch.optim.SGD(sparse.parameters(), lr=0.1), GradualPruning(total_steps=100, every=10))


def test_unstructured_masks_train_as_a_masked_dense_layer_does():
    """RigL on a dense weight and a mask, written out, against blocks of one weight."""
    torch.manual_seed(0)
    dense = nn.Linear(12, 10)
    model = nn.Sequential(copy.deepcopy(dense))
    sparsify_(model, BlockSparsity(sparsity=0.8, block=1, rescale=False))
    train_steps, lr, moved = 6, 0.1, 8
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    attach(model, optimizer, BlockDST(total_steps=100, every=1, fraction=moved / 24, schedule="constant"))
    mask = torch.zeros(120, dtype=torch.bool)
    mask[dense.weight.detach().flatten().abs().topk(24).indices] = True
    mask = mask.reshape(10, 12)
    weight, bias = (dense.weight.detach() * mask).requires_grad_(), dense.bias.detach().clone().requires_grad_()
    for _ in range(train_steps):
        x = torch.randn(5, 12)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        nn.functional.linear(x, weight, bias).square().sum().backward()
        with torch.no_grad():
            weight -= lr * weight.grad * mask
            bias -= lr * bias.grad
            dropped = torch.where(mask, weight.abs(), torch.inf).flatten().topk(moved, largest=False).indices
            grown = torch.where(mask, -1.0, weight.grad.abs()).flatten().topk(moved).indices
            mask.view(-1)[dropped], mask.view(-1)[grown] = False, True
            weight.view(-1)[dropped], weight.view(-1)[grown] = 0.0, 0.0
            weight.grad, bias.grad = None, None
    assert torch.equal(model[0].mask(), mask)
    torch.testing.assert_close(model[0].weight_matrix(), weight)
