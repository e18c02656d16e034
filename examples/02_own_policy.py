"""A policy of one's own: Algorithm 1 that moves many blocks early and none after half of the run.

    python examples/02_own_policy.py

A policy is one frozen class. This one overrides how many blocks move; when they move, what is dropped and what is grown
stay those of `acf.BlockDST`. It is compared with the original on a task whose input features matter unequally.
"""

from dataclasses import dataclass

import torch
from torch import nn

import acf

STEPS = 200


@dataclass(frozen=True)
class EarlyMoves(acf.BlockDST):
    """Move ``fraction`` of the blocks at every t_k in the first half of the run, then rest."""

    def blocks_to_move(self, step: int, present: int, absent: int) -> int:
        """A constant share, then nothing."""
        if 2 * step > self.total_steps:
            return 0
        return min(round(self.fraction * present), present, absent)


def final_loss(policy: acf.StaticTopology | acf.BlockDST) -> tuple[float, int]:
    """Loss after training under ``policy``, and how many blocks it moved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 32))
    target = nn.Linear(128, 32, bias=False)
    target.weight.data[:, 32:] = 0  # only the first 32 features matter
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.8, block=16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    topology = acf.attach(model, optimizer, policy)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(128, 128)
        loss = (model(x) - target(x).detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10, sum(change.moved_blocks for change in topology.changes)


def main() -> None:
    """Train under three policies."""
    policies = {
        "static": acf.StaticTopology(),
        "Algorithm 1": acf.BlockDST(total_steps=STEPS, every=10),
        "early moves": EarlyMoves(total_steps=STEPS, every=10),
    }
    for name, policy in policies.items():
        loss, moved = final_loss(policy)
        print(f"{name:12} loss {loss:.4f}, {moved:4} blocks moved")


if __name__ == "__main__":
    main()
