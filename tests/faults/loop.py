"""A user's own training loop: checkpoints, a log and a store of the topology; called again, it goes on."""

from pathlib import Path

import torch
from torch import nn

import acf
from acf.metrics import RunLog, TopologyStore

STEPS = 24
SAVED_EVERY = 3


def train() -> None:
    """Train in the working directory, to the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checkpoint, first, losses = Path("run.pt"), 1, []
    with RunLog(".", model, STEPS, every=1) as log, TopologyStore("topology.sqlite") as store:
        policy = acf.BlockDST(total_steps=STEPS, every=4)
        topology = acf.attach(model, optimizer, policy, on_move=store)
        parts = {"model": model, "optimizer": optimizer, "topology": topology}
        if checkpoint.exists():
            found = acf.load_checkpoint(checkpoint, **parts)
            first, losses = found["step"] + 1, found["losses"]
        for step in range(first, STEPS + 1):
            x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), x.flip(1))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            log.step(step, losses[-1])
            if step % SAVED_EVERY == 0:
                acf.save_checkpoint(checkpoint, **parts, step=step, losses=losses)
