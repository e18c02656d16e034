"""N:M layers in training: under FSDP, whose gathered weights do not show that they changed, and on real digits."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import acf
from acf.masks import nm_mask
from acf.nn import NMLayer


@pytest.fixture
def one_process_group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process_group")
def test_masks_follow_weights_that_fsdp_gathers(monkeypatch):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    acf.sparsify_(model, acf.NMSparsity(2, 4))
    mesh = init_device_mesh("cpu", (1,))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
    used, masks = [], NMLayer.masks

    def recorded(layer):
        used.append((layer.weight.detach().clone(), masks(layer)))
        return used[-1][1]

    monkeypatch.setattr(NMLayer, "masks", recorded)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 8)).square().sum().backward()
        optimizer.step()
    assert len(used) == 6
    assert not torch.equal(used[0][0], used[4][0])
    for weight, (forward, backward) in used:
        assert torch.equal(forward, nm_mask(weight, 2, 4, dim=1))
        assert torch.equal(backward, nm_mask(weight, 2, 4, dim=0))


def trained_accuracy(spec: acf.NMSparsity | None) -> float:
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(data.target)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    if spec is not None:
        acf.sparsify_(model, spec)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(8):
        for batch in torch.randperm(1400).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    if spec is not None:
        acf.densify_(model)
    with torch.no_grad():
        return (model(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()


@pytest.mark.parametrize("method", ["bdwp", "sr-ste", "sdgp"])
def test_digits_are_learnt_almost_as_well_with_a_quarter_of_the_weights(method):
    accuracy = trained_accuracy(acf.NMSparsity(n=2, m=8, method=method))
    assert accuracy > trained_accuracy(None) - 0.03
