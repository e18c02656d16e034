"""Checkpoints of every release load: one small file of each is kept in ``checkpoints/``.

Each holds ``model``, ``optimizer`` and ``topology`` of the run below after 11 steps, an input ``x`` and its output
``y``. A new release adds its file and never changes an older one.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

import acf

FILES = sorted((Path(__file__).parent / "checkpoints").glob("*.pt"))


def test_a_file_of_the_first_release_is_kept():
    assert "0.1.0.pt" in [path.name for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_run_saved_by_a_release_computes_the_same_and_goes_on(path):
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    acf.sparsify_(model, acf.BlockSparsity(0.75, block=4))
    acf.sparsify_(model, acf.GradientSparsity(0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    policy = acf.BlockDST(total_steps=50, every=4, fraction=0.4, grace_moves=1, score_steps=2)
    topology = acf.attach(model, optimizer, policy)
    rest = acf.load_checkpoint(path, model=model, optimizer=optimizer, topology=topology)
    assert set(rest) == {"x", "y"}
    assert topology.step == 11
    torch.testing.assert_close(model(rest["x"]), rest["y"])
    nn.functional.mse_loss(model(rest["x"]), rest["x"]).backward()
    optimizer.step()
    assert {change.step for change in topology.changes} == {12}
