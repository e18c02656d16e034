"""State of every layout follows a move and a prune, inside wrappers too; what cannot follow is refused by name."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.errors import TopologyError
from acf.masks import BlockDST, StaticTopology
from acf.nn import BlockSparsity, sparsify_
from acf.train.optimizer_state import STATE_RULES

MOVES = BlockDST(total_steps=100, every=4, fraction=0.5, schedule="constant")
STEPS = 12


class Keeps(torch.optim.Optimizer):
    """Gradient descent that keeps what ``layout(parameter)`` makes of every parameter, and writes 1 into all of it."""

    def __init__(self, parameters: Any, layout: Callable[[Tensor], dict[Any, Any]]) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.layout = layout

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(self.layout(parameter))
                expected = self.layout(parameter)
                assert shapes(state) == shapes(expected), "the state no longer fits the parameter"
                parameter.sub_(parameter.grad, alpha=group["lr"])
        return None if closure is None else closure()


def shapes(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: shapes(value) for key, value in state.items()}
    return (
        [shapes(value) for value in state] if isinstance(state, list | tuple | deque) else torch.as_tensor(state).shape
    )


def factors(parameter: Tensor) -> dict[str, Any]:
    """As Hugging Face's Adafactor and CAME keep it: the reduced axis is gone."""
    if parameter.dim() < 2:
        return {"exp_avg_sq": torch.ones_like(parameter), "step": 1}
    return {"row": torch.ones(parameter.shape[:-1]), "col": torch.ones(*parameter.shape[:-2], parameter.shape[-1])}


def covers(parameter: Tensor) -> dict[str, Any]:
    """As SM3 keeps it: one accumulator per axis."""
    dims = parameter.dim()
    sizes = [[parameter.shape[axis] if axis == kept else 1 for axis in range(dims)] for kept in range(dims)]
    return {f"accumulator_{axis}": torch.ones(size) for axis, size in enumerate(sizes)}


PER_SLOT_LAYOUTS: dict[str, Callable[[Tensor], dict[Any, Any]]] = {
    "factors": factors,
    "covers": covers,
    "flat, as Prodigy": lambda p: {"p0": torch.ones(p.numel()), "d": torch.ones(())},
    "matrix of slots": lambda p: {"momentum": torch.ones(p.shape[0], p[0].numel())},
    "matrix of rows": lambda p: {"momentum": torch.ones(p.flatten(0, -2).shape if p.dim() > 2 else p.shape)},
    "queue of gradients, as AdaShift": lambda p: {"queue": deque([torch.ones_like(p), torch.ones_like(p)], maxlen=2)},
    "nested tuples": lambda p: {"pair": (torch.ones_like(p), {"deep": [torch.ones_like(p)]})},
    "preconditioners within blocks, as SOAP": lambda p: {"exp_avg": torch.ones_like(p), "GG": [[], *eyes(p.shape[1:])]},
}


def eyes(sizes: Any) -> list[Tensor]:
    return [torch.eye(size) for size in sizes]


def leaves(value: Any) -> list[Tensor]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | deque) else None
    if children is None:
        return [value] if isinstance(value, Tensor) else []
    return [leaf for child in children for leaf in leaves(child)]


class Run:
    """Two layers of different numbers of blocks, and what was regrown in the first at the last step."""

    def __init__(self, make_optimizer: Callable[..., Any], init: str = "sparse", policy: Any = MOVES) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
        sparsify_(self.model, BlockSparsity(0.5, block=4, init=init))
        self.optimizer = make_optimizer(self.model.parameters())
        self.controller = acf.attach(self.model, self.optimizer, policy)

    def backward(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(8, 16)).square().mean()
        loss.backward()
        return loss

    def train(self, steps: int = STEPS) -> Tensor:
        """Bool ``[nnz]``: the slots of the first layer that the last step regrew."""
        layer = self.model[0]
        for _ in range(steps):
            before = (layer.block_rows.clone(), layer.block_cols.clone())
            self.backward()
            self.optimizer.step()
        if before[0].shape != layer.block_rows.shape:
            return torch.zeros(layer.present_blocks, dtype=torch.bool)
        return (before[0] != layer.block_rows) | (before[1] != layer.block_cols)


@pytest.mark.parametrize("layout", PER_SLOT_LAYOUTS.values(), ids=PER_SLOT_LAYOUTS.keys())
def test_state_with_one_part_per_block_starts_afresh_where_blocks_are_new(layout):
    run = Run(lambda parameters: Keeps(parameters, layout))
    run.train(3)
    regrown = run.train(1)
    assert regrown.any()
    weight = run.model[0].weight
    per_slot = [value for value in leaves(run.optimizer.state[weight]) if value.numel() % len(regrown) == 0]
    assert per_slot
    for value in per_slot:
        by_slot = value.reshape(len(regrown), -1)
        assert torch.equal(by_slot == 0, regrown[:, None].expand_as(by_slot))


@pytest.mark.parametrize("layout", PER_SLOT_LAYOUTS.values(), ids=PER_SLOT_LAYOUTS.keys())
def test_state_shrinks_with_a_dense_start(layout):
    run = Run(lambda parameters: Keeps(parameters, layout), init="dense")
    run.train()  # the optimizer itself checks that its state fits
    assert run.controller.sparsity == pytest.approx(0.5)


def test_what_a_dense_start_keeps_is_the_state_of_the_blocks_that_stay():
    run = Run(lambda parameters: Keeps(parameters, lambda p: {"flat": torch.arange(p.numel()).float()}), init="dense")
    run.train(3)
    run.backward()
    layer = run.model[0]
    codes = (layer.block_rows.long() * 100 + layer.block_cols.long()).tolist()
    run.optimizer.layout = lambda p: {"flat": torch.zeros(p.numel())}
    run.optimizer.step()
    kept = [codes.index(code) for code in (layer.block_rows.long() * 100 + layer.block_cols.long()).tolist()]
    flat = run.optimizer.state[layer.weight]["flat"]
    assert torch.equal(flat.reshape(len(kept), -1)[:, 0], 16.0 * torch.tensor(kept))


class Opaque:
    def __init__(self, parameter: Tensor) -> None:
        self.statistics = [torch.zeros_like(parameter)]


REFUSED: dict[str, tuple[Callable[[Tensor], dict[Any, Any]], str]] = {
    "Shampoo": (
        lambda p: {"preconditioners": eyes(p.shape)},
        r"Keeps keeps preconditioners\.0 of 0\.weight \[12, 4, 4\] as a tensor \[12, 12\], which couples blocks",
    ),
    "Prodigy with slices": (lambda p: {"p0": torch.ones(p.flatten()[::11].shape)}, "which follows from no reduction"),
    "8-bit codes": (lambda p: {"codes": torch.ones_like(p, dtype=torch.uint8)}, r"codes of type torch\.uint8"),
    "an object": (lambda p: {"preconditioner": Opaque(p)}, "in a Opaque, whose tensors are not known"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_state_that_no_rule_covers_is_refused_by_name_before_anything_changes(name, init):
    layout, message = REFUSED[name]
    message = message.replace("12", "24") if init == "dense" else message
    run = Run(lambda parameters: KeepsUnchecked(parameters, layout), init)
    before = run.model[0].mask()
    run.backward()
    with pytest.raises(TopologyError, match=f"(?s){message}.*register_optimizer_state.*AdamW"):
        run.optimizer.step()
    assert torch.equal(run.model[0].mask(), before)


class KeepsUnchecked(Keeps):
    """The same, whose state may be anything."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = self.state[parameter] or self.layout(parameter)


KeepsUnchecked.__name__ = "Keeps"


def test_state_that_exists_already_is_refused_when_attaching():
    run = Run(lambda parameters: KeepsUnchecked(parameters, REFUSED["Shampoo"][0]), policy=StaticTopology())
    run.train(1)
    run.controller.detach()
    with pytest.raises(TopologyError, match="couples blocks"):
        acf.attach(run.model, run.optimizer, MOVES)
    assert not run.optimizer._optimizer_step_post_hooks


def test_a_topology_that_never_moves_takes_any_state():
    Run(lambda parameters: KeepsUnchecked(parameters, REFUSED["Shampoo"][0]), policy=StaticTopology()).train()


def test_a_registered_rule_takes_the_place_of_the_refusal():
    calls = []

    class Quantised(KeepsUnchecked):
        pass

    def rule(state: dict[str, Tensor], kept_slots: Tensor, new_slots: Tensor) -> None:
        calls.append((kept_slots.numel(), int(new_slots.sum())))
        state["codes"] = state["codes"][kept_slots].masked_fill_(new_slots[:, None, None], 128)

    acf.register_optimizer_state(Quantised, rule)
    try:
        run = Run(lambda parameters: Quantised(parameters, REFUSED["8-bit codes"][0]), init="dense")
        run.train(4)
        regrown = run.train(4)
    finally:
        del STATE_RULES[Quantised]
    codes = run.optimizer.state[run.model[0].weight]["codes"]
    assert codes.shape == run.model[0].weight.shape
    assert torch.equal((codes == 128).flatten(1).all(1), regrown)
    assert calls[0] == (12, 0)  # the first call prunes 24 blocks to 12
    assert calls[2] == (12, int(regrown.sum()))


class Lookahead(torch.optim.Optimizer):
    """Slow weights beside an optimizer, in its own state; like many, it does not call Optimizer.__init__."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self.state: dict[Any, Any] = {p: {"slow": p.detach().clone()} for g in self.param_groups for p in g["params"]}
        self.steps = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        self.optimizer.step()
        self.steps += 1
        for parameter, state in self.state.items():
            if self.steps % 3 == 0:
                parameter.copy_(state["slow"].lerp_(parameter, 0.5))


@pytest.mark.parametrize("init", ["sparse", "dense"])
def test_state_of_a_wrapper_and_of_the_optimizer_inside_follow(init):
    run = Run(lambda parameters: Lookahead(torch.optim.AdamW(parameters, lr=0.01)), init)
    run.train(4)
    regrown = run.train(4)
    weight = run.model[0].weight
    assert run.controller.step == 8
    assert regrown.any()
    for value in (run.optimizer.state[weight]["slow"], run.optimizer.optimizer.state[weight]["exp_avg"]):
        assert value.shape == weight.shape
        assert torch.equal(value.flatten(1).any(1), ~regrown)


def test_slow_weights_that_no_parameter_leads_to_are_refused():
    class ListLookahead(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, lr=0.1)
            self.slow_weights = [[p.detach().clone() for p in group["params"]] for group in self.param_groups]

    with pytest.raises(
        TopologyError, match=r"ListLookahead keeps slow_weights\.0\.0 of 0\.weight .* apart from its state"
    ):
        Run(ListLookahead)


def test_copies_of_the_parameters_are_refused():
    class MasterWeights(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, lr=0.1)
            self.inner = torch.optim.SGD([p.detach().clone() for p in self.param_groups[0]["params"]], lr=0.1)

    with pytest.raises(TopologyError, match="MasterWeights steps copies of the parameters in SGD"):
        Run(MasterWeights)


def test_parameters_in_buckets_of_fixed_size_are_refused_where_they_must_shrink():
    def in_buckets(parameters: Any) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        optimizer.parameters_as_bucket_view = True  # as ZeroRedundancyOptimizer has it
        return optimizer

    Run(in_buckets).train()
    with pytest.raises(TopologyError, match="0 must shrink, and SGD holds its weight in a bucket of fixed size"):
        Run(in_buckets, init="dense")
