"""Moving blocks never makes the host wait for the device: no operation whose result the host must read."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from acf.masks import SET, BlockDST
from acf.nn import BlockSparsity, block_sparse_layers, sparsify_
from acf.train import TopologyController, attach

WAITING = {  # each reads a value of a tensor, or makes a tensor whose size depends on values
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.bincount.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.item.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.repeat_interleave.Tensor,
    torch.ops.aten._unique2.default,
}
INDEXING = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default}


class RefuseWaiting(TorchDispatchMode):
    """Raises where a GPU's host would wait; on a CPU the same operations run, so no GPU is needed to see them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAITING:
            raise AssertionError(f"{func} waits for the device")
        if func in INDEXING and any(index is not None and index.dtype == torch.bool for index in args[1]):
            raise AssertionError(f"{func} with a mask waits for the device")
        if func is torch.ops.aten._to_copy.default and (kwargs or {}).get("device") == torch.device("cpu"):
            raise AssertionError("a copy to the host waits for the device")
        return func(*args, **(kwargs or {}))


def test_the_refusal_notices_what_waits():
    values = torch.tensor([1.0, 0.0])
    for waits in (lambda: values[0].item(), lambda: bool(values.any()), lambda: values[values > 0], values.nonzero):
        with RefuseWaiting(), pytest.raises(AssertionError, match="waits for the device"):
            waits()


TIMES = {"total_steps": 100, "every": 2, "schedule": "constant"}
POLICIES = {
    "Algorithm 1": BlockDST(**TIMES),
    "a sample of candidates": BlockDST(**TIMES, candidates=0.5),
    "input-aware": BlockDST(**TIMES, score="input_aware"),
    "grace": BlockDST(**TIMES, grace_moves=1),
    "SET": SET(**TIMES),
}


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@contextmanager
def no_waiting() -> Iterator[None]:
    """Refuse operations that wait, by name and, on a GPU, as the driver sees them."""
    with RefuseWaiting():
        _set_sync_debug_mode("error")
        try:
            yield
        finally:
            _set_sync_debug_mode("default")


def _set_sync_debug_mode(mode: str) -> None:
    if torch.cuda.is_available():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
            torch.cuda.set_sync_debug_mode(mode)


class Run:
    """A model whose blocks move in every second step; the whole of those steps' hooks refuses to wait."""

    def __init__(self, policy: BlockDST | SET, distribution: str, device: str = "cpu") -> None:
        self.device = device
        self.model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 16, 32)).to(device)
        sparsify_(self.model, BlockSparsity(0.75, block=4, distribution=distribution))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.controller: TopologyController = attach(self.model, self.optimizer, policy)

    def step(self, factor: float = 1.0) -> None:
        self.optimizer.zero_grad()
        loss = factor * self.model(torch.randn(4, 8, 4, 4, device=self.device)).square().mean()
        loss.backward()
        with self.controller.paused():
            self.optimizer.step()
        with no_waiting():
            self.controller.count_step()

    def masks(self) -> list[Tensor]:
        return [layer.mask() for layer in block_sparse_layers(self.model).values()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("distribution", ["uniform", "balanced"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_hook_that_moves_blocks_does_not_wait(name, distribution, device):
    run = Run(POLICIES[name], distribution, device)
    before = run.masks()
    for _ in range(4):
        run.step()
    assert {change.step for change in run.controller.changes if change.moved_blocks} == {2, 4}
    assert not any(torch.equal(mask, old) for mask, old in zip(run.masks(), before, strict=True))


def test_listing_the_absent_blocks_before_the_backward_pass_does_not_wait():
    run = Run(POLICIES["a sample of candidates"], "uniform")
    run.step()
    for layer in run.controller._controlled.values():
        with no_waiting():
            candidates = layer.scores.candidates()
        absent = ~layer.layer.mask()
        assert absent[candidates.rows.long(), candidates.cols.long()].all()
        assert candidates.rows.numel() == round(0.5 * int(absent.sum()))


def test_a_layer_whose_gradients_are_all_zero_keeps_its_blocks_and_its_optimizer_state():
    run = Run(POLICIES["Algorithm 1"], "uniform")
    run.step()
    before, exp_avg = run.masks(), [state["exp_avg"].clone() for state in run.optimizer.state.values()]
    run.step(factor=0.0)
    assert all(torch.equal(mask, old) for mask, old in zip(run.masks(), before, strict=True))
    decayed = [state["exp_avg"] / 0.9 for state in run.optimizer.state.values()]
    for mine, old in zip(decayed, exp_avg, strict=True):
        torch.testing.assert_close(mine, old)
    assert run.controller.changes == []
