"""One step per batch is counted: with SAM, loss scalers, several optimizers, and steps that raise."""

import collections
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.errors import TopologyError
from acf.masks import SET, BlockDST, GradualPruning
from acf.nn import BlockSparsity, sparsify_
from acf.train.controller import UncountedStepWarning, UnscoredMoveWarning

EVERY_SECOND = BlockDST(total_steps=100, every=2, fraction=0.5, schedule="constant")


def sparse_model(init: str = "sparse") -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
    sparsify_(model, BlockSparsity(0.5, block=4, init=init))
    return model


def loss_of(model: nn.Module, factor: float = 1.0) -> Tensor:
    return factor * model(torch.randn(8, 16)).square().mean()


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimisation: climb, compute the gradient there, go back, descend."""

    def __init__(self, parameters: Any, radius: float = 0.05) -> None:
        super().__init__(parameters, {"radius": radius})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.05, momentum=0.9)

    @torch.no_grad()
    def first_step(self) -> None:
        for parameter in (p for group in self.param_groups for p in group["params"]):
            self.state[parameter]["old_p"] = parameter.detach().clone()
            parameter.add_(parameter.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for parameter in (p for group in self.param_groups for p in group["params"]):
            parameter.data = self.state[parameter]["old_p"]
        self.base_optimizer.step()

    def step(self, closure: Callable[[], Tensor]) -> None:  # type: ignore[override]
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()


@pytest.mark.parametrize("in_two_calls", [True, False])
@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_sam_counts_one_step_per_batch_and_moves_blocks(in_two_calls, init):
    model = sparse_model(init)
    optimizer = SAM(model.parameters())
    controller = acf.attach(model, optimizer, EVERY_SECOND)
    for _ in range(4):
        loss_of(model).backward()
        if in_two_calls:
            optimizer.first_step()
            loss_of(model).backward()
            optimizer.second_step()
        else:
            optimizer.step(lambda: loss_of(model).backward())
        optimizer.zero_grad()
    assert controller.step == 4
    assert {change.step for change in controller.changes if change.moved_blocks} >= {4}
    assert controller.sparsity == pytest.approx(0.5)


def test_steps_that_no_hook_sees_are_reported():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    acf.attach(model, optimizer, EVERY_SECOND)

    def step_by_hand() -> None:
        loss_of(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
        optimizer.zero_grad()

    with pytest.warns(
        UncountedStepWarning, match=r"20 gradients of 0\.weight were computed without a counted"
    ) as found:
        collections.deque((step_by_hand() for _ in range(30)), maxlen=0)
    assert len(found) == 1


@pytest.mark.parametrize("init", ["sparse", "dense"])
@pytest.mark.parametrize("policy", [EVERY_SECOND, SET(total_steps=100, every=2)])
def test_gradients_that_are_gone_when_blocks_should_move_are_reported(policy, init):
    model = sparse_model(init)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    acf.attach(model, optimizer, policy)
    optimizer.step()
    with pytest.warns(UnscoredMoveWarning, match=r"are None after optimizer\.step; call zero_grad when"):
        optimizer.step()


def test_gradients_that_are_accumulated_are_not_reported():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    controller = acf.attach(model, optimizer, EVERY_SECOND)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            for _ in range(40):
                loss_of(model).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert controller.step == 2


def test_two_steps_after_one_backward_pass_are_called_what_they_are():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    acf.attach(model, optimizer, BlockDST(total_steps=100, every=2, schedule="constant", fraction=0.5))
    loss_of(model).backward()
    optimizer.step()
    with pytest.warns(
        UnscoredMoveWarning, match=r"no gradient was computed since the step before; call optimizer\.step"
    ):
        optimizer.step()


def test_a_step_that_drops_the_gradients_it_was_given_prunes_nothing_and_says_so():
    class ZeroesGradients(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            self.zero_grad()

    model = sparse_model("dense")
    optimizer = ZeroesGradients(model.parameters(), lr=0.1)
    acf.attach(model, optimizer, EVERY_SECOND)
    loss_of(model).backward()
    optimizer.step()
    loss_of(model).backward()
    with pytest.warns(UnscoredMoveWarning, match=r"no block moved at step 2: the gradients of all"):
        optimizer.step()


class InfiniteAt:
    """Trains with a fused optimizer under a loss scaler; the loss overflows in the given batches."""

    def __init__(self, overflows: set[int], policy: Any, init: str = "sparse", fused: bool = True) -> None:
        self.model, self.overflows = sparse_model(init), overflows
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=fused)
        self.controller = acf.attach(self.model, self.optimizer, policy)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        self.moved_in: list[int] = []

    def train(self, batches: int) -> "InfiniteAt":
        for batch in range(1, batches + 1):
            before = [self.model[index].mask() for index in (0, 2)]
            self.optimizer.zero_grad()
            self.scaler.scale(loss_of(self.model, float("inf") if batch in self.overflows else 1.0)).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            after = [self.model[index].mask() for index in (0, 2)]
            if not all(torch.equal(*masks) for masks in zip(before, after, strict=True)):
                self.moved_in.append(batch)
        return self


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("overflows", "moved_in"),
    [(set(), [3, 6, 9]), ({1}, [4, 7, 10]), ({3}, [4, 7, 10]), ({3, 4, 5}, [6, 9, 12]), ({4, 7}, [3, 8, 11])],
)
def test_steps_that_a_loss_scaler_skips_are_not_counted(overflows, moved_in, fused):
    policy = BlockDST(total_steps=100, every=3, fraction=0.5, schedule="constant")
    run = InfiniteAt(overflows, policy, fused=fused).train(12)
    assert run.controller.step == 12 - len(overflows)
    assert run.moved_in[:3] == moved_in
    assert [change.step for change in run.controller.changes if change.layer == "0"][:3] == [3, 6, 9]


def test_gradual_pruning_waits_for_a_step_that_a_loss_scaler_skipped():
    run = InfiniteAt({2}, GradualPruning(total_steps=12, every=2), init="dense").train(3)
    assert run.moved_in == [3]


def test_only_steps_that_score_or_move_read_whether_a_step_was_skipped(monkeypatch):
    reads = []
    settle = acf.train.step_count.StepCount.settle

    def counting(self: Any) -> int:
        if self._skipped is not None:
            reads.append(self.most)
        return settle(self)

    monkeypatch.setattr(acf.train.step_count.StepCount, "settle", counting)
    run = InfiniteAt(set(), BlockDST(total_steps=100, every=10, fraction=0.5, schedule="constant"))
    run.train(30)
    assert reads == [9, 10, 19, 20, 29, 30]


def test_several_optimizers_count_one_step_when_the_last_has_stepped():
    model = sparse_model()
    first = torch.optim.SGD(model[0].parameters(), lr=0.01, momentum=0.9)
    second = torch.optim.AdamW(model[2].parameters(), lr=0.01)
    controller = acf.attach(model, [first, second], EVERY_SECOND)
    counts = []
    for _ in range(4):
        first.zero_grad()
        second.zero_grad()
        loss_of(model).backward()
        for optimizer in (first, second):
            optimizer.step()
            counts.append(controller.step)
    assert counts == [0, 1, 1, 2, 2, 3, 3, 4]
    assert [(change.step, change.layer) for change in controller.changes] == [(2, "0"), (2, "2"), (4, "0"), (4, "2")]
    for layer, optimizer, key in ((model[0], first, "momentum_buffer"), (model[2], second, "exp_avg")):
        new = ~layer.weight.flatten(1).any(1)
        assert new.any()
        assert not optimizer.state[layer.weight][key][new].any()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
def test_muon_for_matrices_and_adamw_for_the_rest():
    model = nn.Sequential(*sparse_model(), nn.Linear(8, 8))
    muon = torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.01)
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.dim() != 2], lr=0.01)
    controller = acf.attach(model, [muon, adamw], EVERY_SECOND)
    for _ in range(2):
        loss_of(model).backward()
        muon.step()
        adamw.step()
    assert {change.layer for change in controller.changes} == {"0", "2"}


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
def test_a_layer_that_muon_cannot_take_is_named_with_the_optimizer_that_can():
    model = nn.Sequential(*sparse_model(), nn.Linear(8, 8))
    muon = torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.01)
    with pytest.raises(TopologyError, match=r"hold no 0\.weight, 2\.weight: Muon takes matrices.*AdamW\(\[p for p in"):
        acf.attach(model, muon, EVERY_SECOND)


def test_a_layer_in_two_optimizers_is_refused_by_its_name():
    model = sparse_model()
    both = [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.AdamW(model[2].parameters(), lr=0.1)]
    with pytest.raises(TopologyError, match=r"2\.weight is in 2 optimizers \(SGD, AdamW\)"):
        acf.attach(model, both, EVERY_SECOND)


def test_no_optimizer_at_all_is_refused():
    with pytest.raises(TopologyError, match="no optimizer was given"):
        acf.attach(sparse_model(), [], EVERY_SECOND)


def test_an_optimizer_whose_steps_cannot_be_seen_is_refused():
    class Unhooked:
        def __init__(self, parameters: Any) -> None:
            self.param_groups, self.state = [{"params": list(parameters)}], {}

        def step(self) -> None:
            pass

    model = sparse_model()
    with pytest.raises(TopologyError, match="the steps of Unhooked cannot be counted"):
        acf.attach(model, Unhooked(model.parameters()), EVERY_SECOND)


def test_a_step_that_raised_does_not_hide_the_next():
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    controller = acf.attach(model, optimizer, EVERY_SECOND)

    def raising() -> float:
        raise ValueError("out of data")

    with pytest.raises(ValueError, match="out of data"):
        optimizer.step(raising)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    assert controller.step == 2


def test_a_step_that_calls_that_of_its_base_class_counts_once():
    class Clipped(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1.0)
            return super().step(closure)

    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # from now on the step of the base class has hooks of its own
    model = sparse_model()
    optimizer = Clipped(model.parameters(), lr=0.1)
    controller = acf.attach(model, optimizer, EVERY_SECOND)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    assert controller.step == 3


@pytest.mark.parametrize("detaches", [False, True])
def test_an_exception_in_on_move_leaves_a_controller_that_goes_on(detaches):
    model = sparse_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    calls: list[int] = []

    def on_move(step: int, _: Any) -> None:
        calls.append(step)
        if len(calls) == 1:
            if detaches:
                controller.detach()
            raise KeyboardInterrupt

    controller = acf.attach(model, optimizer, BlockDST(total_steps=100, every=1, fraction=0.5), on_move)
    for index in range(4):
        optimizer.zero_grad()
        loss_of(model).backward()
        if index == 0:
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
        else:
            optimizer.step()
    assert calls == ([1] if detaches else [1, 2, 3, 4])
    for layer in (model[0], model[2]):
        assert int(layer.mask().sum()) == layer.present_blocks
