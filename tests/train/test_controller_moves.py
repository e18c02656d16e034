"""Which blocks move during training, when, and that the sparsity ratio holds."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from acf.masks import BlockDST
from acf.nn import BlockSparsity, block_sparse_layers, densify_, sparsify_, weight_sparsity
from acf.train import TopologyController, attach

EVERY_STEP = BlockDST(total_steps=100, every=1, fraction=0.3, schedule="constant")


def sparse_model() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 32), nn.ReLU(), nn.Linear(32, 16)
    )
    sparsify_(model, BlockSparsity(sparsity=0.75, block=4, rescale=False))
    return model


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 8, 4, 4, generator=generator), torch.randn(6, 16, generator=generator)


def backward(model: nn.Module, seed: int) -> None:
    x, target = batch(seed)
    nn.functional.mse_loss(model(x), target).backward()


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad()
    backward(model, seed)
    optimizer.step()


def masks(model: nn.Module) -> dict[str, Tensor]:
    return {name: layer.mask() for name, layer in block_sparse_layers(model).items()}


def blocks_of(matrix: Tensor) -> Tensor:
    """Norms of the 4 x 4 blocks of a weight, of a linear layer or a convolution."""
    if matrix.dim() == 4:
        matrix = matrix.permute(0, 2, 3, 1).flatten(1)
    return matrix.unfold(0, 4, 4).unfold(1, 4, 4).square().sum((2, 3)).sqrt()


def top(scores: Tensor, among: Tensor, count: int) -> Tensor:
    """The mask of the ``count`` greatest scores among the blocks of a mask."""
    chosen = torch.zeros_like(among)
    candidates = torch.where(among, scores, -torch.inf).flatten()
    chosen.view(-1)[candidates.topk(count).indices] = True
    return chosen


def snapshots_before_moves(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, Tensor]]:
    """Weight matrices after each optimizer step and before blocks move; ask for it before attaching."""
    taken: list[dict[str, Tensor]] = []
    optimizer.register_step_post_hook(
        lambda *_: taken.append(
            {name: layer.weight_matrix().detach() for name, layer in block_sparse_layers(model).items()}
        )
    )
    return taken


def test_the_sparsity_stays_exactly_the_same_over_forty_steps_while_blocks_move():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    controller = attach(model, optimizer, BlockDST(total_steps=40, every=4))
    before, sparsity = masks(model), weight_sparsity(model)
    assert controller.sparsity == sparsity == 0.75
    for step in range(40):
        train_step(model, optimizer, seed=step)
        assert weight_sparsity(model) == controller.sparsity == sparsity
        for name, mask in masks(model).items():
            assert mask.sum() == before[name].sum()
    assert all(not torch.equal(mask, before[name]) for name, mask in masks(model).items())


def test_blocks_move_at_the_steps_of_the_policy_and_as_many_as_it_says():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    policy = BlockDST(total_steps=40, every=4, fraction=0.5, stop_at=0.5)
    controller = attach(model, optimizer, policy)
    for step in range(1, 41):
        before = masks(model)
        train_step(model, optimizer, seed=step)
        for name, mask in masks(model).items():
            present = int(mask.sum())
            expected = policy.blocks_to_move(step, present, mask.numel() - present) if policy.moves_at(step) else 0
            assert int((before[name] & ~mask).sum()) == expected
            reported = [change for change in controller.changes if (change.step, change.layer) == (step, name)]
            assert sum(change.moved_blocks for change in reported) == expected
            assert all(change.present_blocks == present for change in reported)
    assert {change.step for change in controller.changes if change.moved_blocks} == {4, 8, 12, 16}


def test_the_topology_rests_after_the_last_moving_step_while_the_weights_still_train():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    policy = BlockDST(total_steps=40, every=4, stop_at=0.5, schedule="constant")
    controller = attach(model, optimizer, policy)
    for step in range(20):
        train_step(model, optimizer, seed=step)
    rested, weight, last = masks(model), model[3].weight.detach().clone(), controller.changes[-1].step
    for step in range(20, 40):
        train_step(model, optimizer, seed=step)
    assert last == controller.changes[-1].step == 20
    assert all(torch.equal(mask, rested[name]) for name, mask in masks(model).items())
    assert not torch.equal(model[3].weight, weight)


def test_the_dropped_blocks_are_those_of_least_norm_after_the_update():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    updated = snapshots_before_moves(model, optimizer)
    controller = attach(model, optimizer, EVERY_STEP)
    for step in range(3):
        before = masks(model)
        train_step(model, optimizer, seed=step)
        for change in controller.changes[-3:]:
            name = change.layer
            expected = top(-blocks_of(updated[-1][name]), before[name], change.moved_blocks)
            assert torch.equal(before[name] & ~masks(model)[name], expected)


def test_the_regrown_blocks_are_the_absent_ones_of_greatest_norm_in_the_dense_gradient():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, EVERY_STEP)
    for step in range(3):
        before = masks(model)
        dense = densify_(copy.deepcopy(model))
        dense.zero_grad()
        backward(dense, seed=step)
        train_step(model, optimizer, seed=step)
        for change in controller.changes[-3:]:
            name = change.layer
            gradient = blocks_of(dense.get_submodule(name).weight.grad)
            expected = top(gradient, ~before[name], change.moved_blocks)
            assert torch.equal(~before[name] & masks(model)[name], expected)


def test_regrown_blocks_start_at_zero_and_the_others_keep_what_the_optimizer_gave_them():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    updated = snapshots_before_moves(model, optimizer)
    attach(model, optimizer, EVERY_STEP)
    before = masks(model)
    train_step(model, optimizer, seed=0)
    for name, layer in block_sparse_layers(model).items():
        stayed = before[name] & layer.mask()
        norms = blocks_of(layer.weight_matrix().detach())
        assert (layer.mask() & ~before[name]).any()
        assert not norms[~stayed].any()
        blocks = layer.layout.blocks(layer.weight_matrix().detach())
        assert torch.equal(blocks[stayed], layer.layout.blocks(updated[-1][name])[stayed])


def test_blocks_that_were_just_regrown_get_a_gradient_in_the_next_step():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attach(model, optimizer, BlockDST(total_steps=100, every=2, fraction=0.5, schedule="constant"))
    train_step(model, optimizer, seed=0)
    before = masks(model)["3"]
    train_step(model, optimizer, seed=1)
    layer = model[3]
    grown = before.logical_not()[layer.block_rows.long(), layer.block_cols.long()]
    train_step(model, optimizer, seed=2)
    assert grown.any()
    assert layer.weight[grown].flatten(1).any(dim=1).all()


def accumulate(model: nn.Module, optimizer: torch.optim.Optimizer, seeds: list[int]) -> None:
    optimizer.zero_grad()
    for seed in seeds:
        backward(model, seed)
    optimizer.step()


def test_gradient_accumulation_counts_optimizer_steps_and_ranks_by_all_passes_of_the_step():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, BlockDST(total_steps=100, every=2, fraction=0.3, schedule="constant"))
    accumulate(model, optimizer, [0, 1, 2])
    assert controller.step == 1
    assert controller.changes == []
    before, dense = masks(model), densify_(copy.deepcopy(model))
    squares = dict.fromkeys(before, 0.0)
    for seed in (3, 4, 5):
        dense.zero_grad()
        backward(dense, seed)
        squares = {
            name: total + blocks_of(dense.get_submodule(name).weight.grad).square() for name, total in squares.items()
        }
    accumulate(model, optimizer, [3, 4, 5])
    assert [change.step for change in controller.changes] == [2, 2, 2]
    for change in controller.changes:
        expected = top(squares[change.layer], ~before[change.layer], change.moved_blocks)
        assert torch.equal(~before[change.layer] & masks(model)[change.layer], expected)


def train_with_scaler(overflowing: set[int]) -> tuple[nn.Module, TopologyController]:
    """Ten good steps under a real loss scaler; before the steps named, one pass overflows and is skipped."""
    torch.manual_seed(0)
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    controller = attach(model, optimizer, BlockDST(total_steps=20, every=2))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for step in range(10):
        for factor in [torch.inf, 1.0] if step in overflowing else [1.0]:
            optimizer.zero_grad()
            x, target = batch(step)
            scaler.scale(nn.functional.mse_loss(model(x), target) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
    return model, controller


def test_steps_a_loss_scaler_skips_leave_no_trace_in_weights_topology_or_step_count():
    expected, undisturbed = train_with_scaler(overflowing=set())
    model, controller = train_with_scaler(overflowing={0, 1, 4, 5})
    assert controller.step == undisturbed.step == 10
    assert controller.changes == undisturbed.changes
    assert any(change.moved_blocks for change in controller.changes)
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name


def test_a_step_that_is_never_taken_moves_nothing():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, EVERY_STEP)
    before = masks(model)
    for seed in range(5):
        optimizer.zero_grad()
        backward(model, seed)
    assert (controller.step, controller.changes) == (0, [])
    assert all(torch.equal(mask, before[name]) for name, mask in masks(model).items())
    train_step(model, optimizer, seed=5)
    assert controller.step == 1
    assert all(mask.sum() == before[name].sum() for name, mask in masks(model).items())


def test_a_layer_that_took_no_part_in_a_step_keeps_its_blocks():
    model = nn.ModuleDict({"used": nn.Linear(16, 16), "idle": nn.Linear(16, 16)})
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, EVERY_STEP)
    before, weight = masks(model), model["idle"].weight.detach().clone()
    model["used"](torch.randn(4, 16)).square().sum().backward()
    optimizer.step()
    assert torch.equal(model["idle"].mask(), before["idle"])
    assert torch.equal(model["idle"].weight, weight)
    assert not torch.equal(model["used"].mask(), before["used"])
    assert {change.layer for change in controller.changes if change.moved_blocks} == {"used"}


def test_a_fully_dense_layer_has_nothing_to_move():
    model = nn.Sequential(nn.Linear(8, 8))
    sparsify_(model, BlockSparsity(sparsity=0.0, block=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attach(model, optimizer, EVERY_STEP)
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    assert model[0].mask().all()
    assert blocks_of(model[0].weight_matrix().detach()).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_model_of_another_dtype_moves_blocks_too(dtype):
    model = nn.Sequential(nn.Linear(16, 16))
    sparsify_(model, BlockSparsity(sparsity=0.5, block=4))
    model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, EVERY_STEP)
    model(torch.randn(4, 16, dtype=dtype)).square().sum().backward()
    optimizer.step()
    assert [change.moved_blocks for change in controller.changes] == [2]


def test_training_under_autocast_moves_blocks():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    controller = attach(model, optimizer, EVERY_STEP)
    x, target = batch(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), target)
    loss.backward()
    optimizer.step()
    assert all(change.moved_blocks > 0 for change in controller.changes)
    assert len(controller.changes) == 3


def test_training_with_moving_blocks_reduces_the_loss():
    model = sparse_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    attach(model, optimizer, BlockDST(total_steps=60, every=5))
    x, target = batch(0)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("block", [4, 8, 16, 32, 64, 128, (4, 16), (32, 8), (128, 64)], ids=str)
def test_blocks_of_every_size_move_to_where_the_dense_gradient_is_greatest_at_the_same_sparsity(block):
    model = nn.Sequential(nn.Linear(512, 512, bias=False))
    sparsify_(model, BlockSparsity(sparsity=0.75, block=block))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    attach(model, optimizer, EVERY_STEP)
    layer = model[0]
    for seed in range(3):
        x = torch.randn(16, 512, generator=torch.Generator().manual_seed(seed))
        before, gradient = layer.mask(), (x @ layer.weight_matrix().detach().T).T @ x
        optimizer.zero_grad()
        (model(x).square().sum() / 2).backward()
        optimizer.step()
        grown = layer.mask() & ~before
        assert grown.any()
        assert torch.equal(grown, top(layer.layout.block_norms(gradient), ~before, int(grown.sum())))
        assert weight_sparsity(model) == 0.75


def test_gradient_clipping_sees_the_gradients_of_present_blocks_alone():
    """Also in the step that scores absent blocks: their gradients are ranked, and count for nothing else."""
    model = sparse_model()
    attach(model, torch.optim.SGD(model.parameters(), lr=0.05), EVERY_STEP)
    dense = densify_(copy.deepcopy(model))
    for each in (model, dense):
        backward(each, seed=0)
    squares = [parameter.grad.square().sum() for name, parameter in dense.named_parameters() if "bias" in name]
    for name, layer in block_sparse_layers(model).items():
        squares.append(blocks_of(dense.get_submodule(name).weight.grad)[layer.mask()].square().sum())
    expected = torch.stack(squares).sum().sqrt()
    dense_norm = nn.utils.clip_grad_norm_(dense.parameters(), 1e-3)
    assert expected < 0.95 * dense_norm  # or the test would prove nothing
    torch.testing.assert_close(nn.utils.clip_grad_norm_(model.parameters(), 1e-3), expected)
    clipped = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    torch.testing.assert_close(clipped, torch.tensor(1e-3))


def test_a_loss_scaler_does_not_skip_a_step_because_gradients_of_absent_blocks_overflow():
    model = nn.Sequential(nn.Linear(12, 8, bias=False))
    sparsify_(model, BlockSparsity(sparsity=2 / 3, block=4))
    layer = model[0]
    with torch.no_grad():  # the first block column is present, the others are not
        layer.block_rows.copy_(torch.tensor([0, 1]))
        layer.block_cols.copy_(torch.tensor([0, 0]))
    model.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    controller = attach(model, optimizer, EVERY_STEP)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x = torch.ones(4, 12)
    x[:, 8:] = 1e37  # no present block multiplies these, but the gradient of an absent one is beyond float32
    before = layer.weight.detach().clone()
    scaler.scale(model(x).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**10
    assert controller.step == 1
    assert not torch.equal(layer.weight, before)
    assert layer.weight.isfinite().all()


def test_training_with_recomputed_activations_moves_the_same_blocks():
    models = [sparse_model()]
    models.append(copy.deepcopy(models[0]))
    for model, forward in zip(models, (lambda x: models[0](x), lambda x: recomputed(models[1], x)), strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        controller = attach(model, optimizer, EVERY_STEP)
        for step in range(4):
            x, target = batch(step)
            optimizer.zero_grad()
            nn.functional.mse_loss(forward(x), target).backward()
            optimizer.step()
        assert len(controller.changes) == 12
    for name, value in models[0].state_dict().items():
        assert torch.equal(models[1].state_dict()[name], value), name


def recomputed(model: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(model, x, use_reentrant=False)
