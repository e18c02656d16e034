"""Many moves of blocks: sparsity and figures do not drift, and what is remembered is bounded."""

import torch
from torch import nn

import acf
from acf.train.changes import MOST_CHANGES, TopologyChange
from tests.load.footprint import MIB, Load, in_tenths

LAYERS = 16
SIDE, BLOCK, SPARSITY = 32, 4, 0.75


class Moves:
    """A stack of small block-sparse layers, in all of which blocks move after every step."""

    def __init__(self, steps: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(SIDE, SIDE) for _ in range(LAYERS)))
        acf.sparsify_(self.model, acf.BlockSparsity(SPARSITY, block=BLOCK))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        policy = acf.BlockDST(total_steps=steps, every=1, schedule="constant", stop_at=1.0)
        self.heard = self.moved_blocks = 0
        self.topology = acf.attach(self.model, self.optimizer, policy, on_move=self._hear)
        self.batch = torch.randn(4, SIDE)

    def train(self, steps: int) -> None:
        """So many steps; the blocks that moved are counted."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()
        self.moved_blocks += sum(change.moved_blocks for change in self.topology.changes[-steps * LAYERS :])

    def _hear(self, step: int, figures: object) -> None:
        self.heard += 1


def load_moves(count: int) -> Load:
    """``count`` blocks that move, or a few more."""
    one_step = Moves(1)
    one_step.train(1)
    steps = max(10, -(-count // one_step.moved_blocks))
    moves = Moves(steps)
    sparsity = moves.topology.sparsity
    seconds, early, late = in_tenths(steps, moves.train)
    changes, figures = moves.topology.changes, moves.topology.figures()
    wrong = _order_of(changes, steps)
    if moves.topology.sparsity != sparsity:
        wrong.append(f"the sparsity drifted from {sparsity} to {moves.topology.sparsity}")
    if moves.heard != steps:
        wrong.append(f"on_move was called {moves.heard} times in {steps} steps")
    if not all(0 <= each.density <= 1 and 0 <= each.flip_rate <= 1 and 0 <= each.explored <= 1 for each in figures):
        wrong.append(f"a figure is not a share: {figures}")
    if not all(parameter.isfinite().all() for parameter in moves.model.parameters()):
        wrong.append("a weight is not finite")
    return Load(
        "blocks moved",
        moves.moved_blocks,
        seconds,
        (late.resident_bytes - early.resident_bytes) / MIB,
        late.open_files - early.open_files,
        {"steps": steps, "sparsity": moves.topology.sparsity, "remembered changes": len(changes)},
        wrong,
    )


def _order_of(changes: list[TopologyChange], steps: int) -> list[str]:
    """What is missing or out of order in the changes that are remembered: the latest, of every step and layer."""
    expected = min(steps * LAYERS, MOST_CHANGES)
    wrong = [] if len(changes) == expected else [f"{len(changes)} changes are remembered, not {expected}"]
    numbers = [steps * LAYERS - 1 - place for place in range(len(changes))][::-1]
    wanted = [(number // LAYERS + 1, str(number % LAYERS)) for number in numbers]
    if [(each.step, each.layer) for each in changes] != wanted:
        wrong.append("changes are lost or out of order")
    if any(each.moved_blocks < 1 for each in changes):
        wrong.append("a layer moved no block")
    return wrong
