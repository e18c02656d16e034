"""Models that start with all blocks and shrink: Algorithm 1 as printed, and gradual pruning."""

import copy

import pytest
import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.masks import BlockDST, GradualPruning
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_, weight_sparsity
from acf.train import TopologyController, attach

DENSE_START = BlockSparsity(sparsity=0.75, block=4, init="dense")
PRINTED = BlockDST(total_steps=40, every=4, fraction=0.25, schedule="constant")
GRADUAL = GradualPruning(total_steps=24, every=4)
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "Adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
}


class Run:
    """A model that starts dense, its optimizer and its controller; batches depend on the step alone."""

    def __init__(self, policy=PRINTED, make_optimizer=OPTIMIZERS["SGD"], seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        sparsify_(self.model, DENSE_START)
        self.optimizer = make_optimizer(self.model.parameters())
        self.controller: TopologyController = attach(self.model, self.optimizer, policy)

    def train(self, steps: range, forward=None) -> None:
        for step in steps:
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad()
            self.loss = nn.functional.mse_loss((forward or self.model)(x), x.flip(1))  # the graph outlives the step
            self.loss.backward()
            self.optimizer.step()

    def state(self) -> dict[str, dict]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "topology": self.controller.state_dict(),
        }

    def load(self, state: dict[str, dict]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.controller.load_state_dict(state["topology"])


def block_norms(matrix: Tensor) -> Tensor:
    return matrix.detach().unfold(0, 4, 4).unfold(1, 4, 4).square().sum((2, 3)).sqrt()


def test_all_blocks_are_present_and_compute_as_the_dense_model_until_the_first_move():
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(16, 16))
    model = copy.deepcopy(dense)
    sparsify_(model, DENSE_START)
    x = torch.randn(4, 16)
    assert weight_sparsity(model) == 0.0
    torch.testing.assert_close(model(x), dense(x))
    run = Run()
    run.train(range(3))
    assert run.controller.sparsity == 0.0


def test_the_first_move_keeps_the_strong_blocks_and_the_pruned_ones_of_greatest_gradient():
    run = Run(make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05))
    run.train(range(3))
    taken = []
    run.optimizer.register_step_pre_hook(lambda *_: taken.append(run.model[0].weight.grad.clone()))
    before = run.model[0].weight_matrix().detach()
    run.train(range(3, 4))
    layout = run.model[0].layout
    rows, cols = (index.flatten() for index in torch.meshgrid(torch.arange(8), torch.arange(4), indexing="ij"))
    gradient = layout.unpack(taken[0], rows, cols)
    after = before - 0.05 * gradient
    kept, back = 8, 2
    norms, growth = block_norms(after).flatten(), block_norms(gradient).flatten()
    strong = norms.topk(kept - back).indices
    growth[strong] = -1.0
    expected = torch.zeros(32, dtype=torch.bool)
    expected[strong] = True
    expected[growth.topk(back).indices] = True
    mask = run.model[0].mask()
    assert torch.equal(mask.flatten(), expected)
    wanted = torch.where(mask.repeat_interleave(4, 0).repeat_interleave(4, 1), after, 0.0)
    torch.testing.assert_close(run.model[0].weight_matrix(), wanted)
    (change,) = [change for change in run.controller.changes if change.layer == "0"]
    assert (change.moved_blocks, change.present_blocks, change.pruned_blocks) == (2, 8, 24)


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_the_parameter_really_shrinks_and_takes_its_optimizer_state_along(make_optimizer):
    run = Run(make_optimizer=make_optimizer)
    weight = run.model[0].weight
    run.train(range(3))
    before = {}
    run.optimizer.register_step_post_hook(lambda *_: before.update(copy.deepcopy(run.optimizer.state[weight])))
    for handle in run.controller._hook.handles[1:]:
        run.optimizer._optimizer_step_post_hooks.move_to_end(handle.id)  # look before the blocks go
    run.train(range(3, 4))
    assert run.model[0].weight is weight
    assert weight.shape == weight.grad.shape == (8, 4, 4)
    slots = run.model[0].block_rows.long() * 4 + run.model[0].block_cols.long()  # all 32 stood in row-major order
    state = run.optimizer.state[weight]
    slot_state = [key for key, value in before.items() if isinstance(value, Tensor) and value.dim() == 3]
    assert slot_state
    for key in slot_state:
        assert torch.equal(state[key], before[key][slots]), key
    assert {group_member.shape for group_member in run.optimizer.param_groups[0]["params"]} == {
        (8, 4, 4),
        (32,),
        (16,),
    }
    run.train(range(4, 12))
    assert run.controller.sparsity == 0.75


def test_after_the_first_move_blocks_go_on_moving_at_the_target():
    run = Run()
    run.train(range(4))
    mask = run.model[0].mask()
    run.train(range(4, 12))
    assert [change.pruned_blocks for change in run.controller.changes] == [24, 24, 0, 0, 0, 0]
    assert all(change.moved_blocks == 2 for change in run.controller.changes)
    assert not torch.equal(run.model[0].mask(), mask)


def test_gradual_pruning_shrinks_step_by_step_to_the_target():
    run = Run(GRADUAL)
    counts = []
    for step in range(24):
        run.train(range(step, step + 1))
        counts.append(run.model[0].present_blocks)
    assert counts[2:16:4] == [32, 18, 11, 8]  # until the next t_k
    assert counts[3:16:4] == [8 + round(24 * share**3) for share in (0.75, 0.5, 0.25, 0.0)]
    assert counts[-1] == 8
    assert sorted(counts, reverse=True) == counts
    assert run.loss.isfinite()


@pytest.mark.parametrize("policy", [PRINTED, GRADUAL], ids=["Algorithm 1", "gradual"])
@pytest.mark.parametrize("saved_at", [3, 5, 13])
def test_a_run_resumed_before_or_after_shrinking_equals_the_uninterrupted_one(policy, saved_at, tmp_path):
    whole, first, second = Run(policy), Run(policy), Run(policy, seed=2)
    whole.train(range(20))
    first.train(range(saved_at))
    torch.save(first.state(), tmp_path / "run.pt")
    second.load(torch.load(tmp_path / "run.pt", weights_only=True))
    second.train(range(saved_at, 20))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name
    momenta = [[state["momentum_buffer"] for state in run.optimizer.state.values()] for run in (whole, second)]
    assert all(torch.equal(mine, other) for mine, other in zip(*momenta, strict=True))


def test_a_shrunken_model_can_be_rolled_back_to_its_dense_checkpoint():
    run = Run()
    run.train(range(2))
    dense = copy.deepcopy(run.state())
    run.train(range(2, 6))
    again = copy.deepcopy(run.model.state_dict())
    run.load(dense)
    assert run.controller.sparsity == 0.0
    run.train(range(2, 6))
    for name, value in again.items():
        assert torch.equal(run.model.state_dict()[name], value), name


def test_a_checkpoint_with_fewer_blocks_than_the_target_is_refused():
    run, other = Run(), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    sparsify_(other, BlockSparsity(sparsity=0.9, block=4))
    with pytest.raises(TopologyError, match=r"0\.weight in the checkpoint is \[3, 4, 4\]"):
        run.model.load_state_dict(other.state_dict())
    assert run.controller.sparsity == 0.0


def test_a_compiled_model_shrinks_too():
    torch._dynamo.reset()
    eager, compiled = Run(), Run()
    eager.train(range(10))
    compiled.train(range(10), forward=torch.compile(compiled.model, backend="aot_eager", fullgraph=True))
    for name, value in eager.model.state_dict().items():
        torch.testing.assert_close(compiled.model.state_dict()[name], value)
    torch._dynamo.reset()


def test_a_frozen_layer_keeps_all_its_blocks():
    run = Run()
    run.model[2].weight.requires_grad_(False)
    run.train(range(6))
    assert {name: layer.density for name, layer in block_sparse_layers(run.model).items()} == {"0": 0.25, "2": 1.0}
