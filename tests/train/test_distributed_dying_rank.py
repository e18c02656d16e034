"""A process that is killed in the middle of a step: what is left on the disk, and what the other process sees.

The run that a killed one is compared with is played in one process, which passes the data of both ranks one after the
other: the mean of two halves is exact, so the weights agree bit by bit.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import acf
from acf.train.controlled_layer import ControlledLayer
from tests.train.two_ranks import PROCESSES, WORLD_SIZE, join_group

STEPS = 12
SAVED_EVERY = 2
GROUP_TIMEOUT_S = 20
FAILED = 3  # exit code of a process that met an error of its group


class Run:
    """A sparse model in training; the batch of a step depends on step and rank alone."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module] = lambda model: model) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        acf.sparsify_(self.model, acf.BlockSparsity(0.75, block=4))
        self.wrapped = wrap(self.model)
        self.optimizer = torch.optim.SGD(self.wrapped.parameters(), lr=0.1, momentum=0.9)
        policy = acf.BlockDST(total_steps=STEPS, every=3, stop_at=1.0, schedule="constant")
        self.topology = acf.attach(self.wrapped, self.optimizer, policy)

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "topology": self.topology}

    def loss(self, step: int, rank: int) -> Tensor:
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + rank))
        return nn.functional.mse_loss(self.wrapped(x), (1.0 + rank) * x.flip(1))

    def train_alone(self, steps: range) -> None:
        for step in steps:
            self.optimizer.zero_grad()
            for rank in range(WORLD_SIZE):
                (self.loss(step, rank) / WORLD_SIZE).backward()
            self.optimizer.step()


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_the_backward_pass(run: Run) -> None:
    run.model[2].weight.register_hook(die)  # the gradient of the first layer is still to come


def die_while_blocks_move(run: Run) -> None:
    candidates, calls = ControlledLayer.absent_candidates, []

    def second_is_deadly(layer: ControlledLayer) -> Any:
        calls.append(1)
        return die() if len(calls) == 2 else candidates(layer)

    ControlledLayer.absent_candidates = second_is_deadly  # the first layer's scores are shared, the second's are not


def die_while_writing(run: Run) -> None:
    save = torch.save

    def save_half(state: Any, file: Any) -> None:
        whole = BytesIO()
        save(state, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])
        file.flush()
        die()

    torch.save = save_half


# Who dies, at which step (counted from 1), how, and the step of the checkpoint that is left.
DEATHS: dict[str, tuple[int, int, Callable[[Run], None], int]] = {
    "in the backward pass": (1, 8, die_in_the_backward_pass, 6),
    "while blocks move": (1, 9, die_while_blocks_move, 8),
    "while writing the checkpoint": (0, 8, die_while_writing, 6),
}


def work(rank: int, folder: str, death: str) -> None:
    """One process: train and save until one of the two dies and the other has said so."""
    join_group(rank, Path(folder), timeout=timedelta(seconds=GROUP_TIMEOUT_S))
    run = Run(DistributedDataParallel)
    victim, last_step, arm, _ = DEATHS[death]
    for step in range(1, STEPS + 1):
        if (rank, step) == (victim, last_step):
            arm(run)
        try:
            run.optimizer.zero_grad()
            run.loss(step, rank).backward()
            run.optimizer.step()
        except RuntimeError as error:
            (Path(folder) / "error.txt").write_text(f"{step} {error}")
            acf.save_checkpoint(Path(folder) / "survivor.pt", **run.parts)
            os._exit(FAILED)
        if rank == 0 and step % SAVED_EVERY == 0:
            acf.save_checkpoint(Path(folder) / "run.pt", **run.parts)


@pytest.fixture(scope="module", params=DEATHS)
def death(request, tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [PROCESSES.Process(target=work, args=(rank, str(folder), request.param)) for rank in range(WORLD_SIZE)]
    for process in ranks:
        process.start()
    victim, *_, saved_step = DEATHS[request.param]
    ranks[victim].join(timeout=120)
    died = time.monotonic()
    ranks[1 - victim].join(timeout=2 * GROUP_TIMEOUT_S)
    waited_s = time.monotonic() - died
    for process in ranks:
        process.kill()
    exit_codes = {"victim": ranks[victim].exitcode, "survivor": ranks[1 - victim].exitcode}
    return {"folder": folder, "saved_step": saved_step, "exit_codes": exit_codes, "waited_s": waited_s}


@pytest.fixture(scope="module")
def uninterrupted() -> Run:
    run = Run()
    run.train_alone(range(1, STEPS + 1))
    return run


def test_the_other_process_gets_an_error_in_time(death):
    assert death["exit_codes"] == {"victim": -signal.SIGKILL, "survivor": FAILED}
    assert death["waited_s"] < 2 * GROUP_TIMEOUT_S
    assert len((death["folder"] / "error.txt").read_text()) > 10


def test_the_last_checkpoint_loads_and_the_resumed_run_equals_the_uninterrupted_one(death, uninterrupted):
    resumed = Run()
    assert acf.load_checkpoint(death["folder"] / "run.pt", **resumed.parts) == {}
    assert resumed.topology.step == death["saved_step"]
    resumed.train_alone(range(death["saved_step"] + 1, STEPS + 1))
    assert any(change.moved_blocks for change in resumed.topology.changes)
    for name, value in uninterrupted.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name
    for mine, other in zip(resumed.optimizer.state.values(), uninterrupted.optimizer.state.values(), strict=True):
        assert torch.equal(mine["momentum_buffer"], other["momentum_buffer"])


def test_what_the_survivor_saves_after_the_error_loads_and_trains_on_at_the_same_sparsity(death):
    run = Run()
    sparsity = run.topology.sparsity
    acf.load_checkpoint(death["folder"] / "survivor.pt", **run.parts)
    run.train_alone(range(20, 26))
    assert run.topology.sparsity == sparsity
    assert all(layer.mask().sum() == layer.present_blocks for layer in run.topology.layers.values())
    assert all(value.isfinite().all() for value in run.model.state_dict().values())
