"""`acf.offload` trains a model on a device as the host would, and says where the time went."""

import copy

import pytest
import torch
from torch import Tensor, nn

import acf
from acf.offloading import OffloadError, OffloadRun
from acf.runtime import Device


def sparse_cnn() -> nn.Sequential:
    """Dense and block-sparse convolutions and linear layers, with and without bias and stride."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.5, block=16))
    return model


def batches(steps: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(4, 3, 4, 4, generator=generator), torch.randint(0, 4, (4,), generator=generator))
        for _ in range(steps)
    ]


def train(model: nn.Module, steps: int, moving: bool = True) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = acf.BlockDST(total_steps=20, every=2, fraction=0.5)
    topology = acf.attach(model, optimizer, policy) if moving else None
    losses = []
    for images, labels in batches(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    if topology is not None:
        topology.detach()
    return losses


@pytest.fixture(scope="module")
def trained() -> tuple[OffloadRun, nn.Module, list[float], list[float]]:
    """A run of three steps on "sim" beside the same steps on the host."""
    torch.manual_seed(0)
    model = sparse_cnn()
    on_host = copy.deepcopy(model)
    expected = train(on_host, 3)
    with acf.offload(model, "sim") as run:
        found = train(model, 3)
    return run, on_host, found, expected


Trained = tuple[OffloadRun, nn.Module, list[float], list[float]]


def test_losses_on_the_simulated_fabric_are_those_of_the_host_within_bf16(trained: Trained) -> None:
    _, _, found, expected = trained
    assert found == pytest.approx(expected, rel=2e-2)
    assert found != expected  # the device rounds to bf16


def test_blocks_move_on_the_device_as_on_the_host(trained: Trained) -> None:
    run, on_host, _, _ = trained
    assert [row.moved_layers for row in run.steps] == [0, 0, 2]
    pairs = zip(run.model.buffers(), on_host.buffers(), strict=True)
    assert all(torch.equal(found, expected) for found, expected in pairs)


def test_every_step_has_a_row_with_time_traffic_and_energy(trained: Trained) -> None:
    run, _, _, _ = trained
    assert [row.step for row in run.steps] == [0, 1, 2]
    for row in run.steps:
        assert min(row.compute_s, row.copy_s, row.host_s, row.energy_j) > 0
        assert row.total_s >= max(row.compute_s, row.host_s)
        assert row.idle_s == pytest.approx(row.total_s - row.compute_s - row.copy_s, rel=0.05)
    assert run.table().splitlines()[0].split()[:6] == ["step", "total", "host", "copy", "compute", "idle"]
    assert len(run.table().splitlines()) == 4


def test_what_has_no_program_is_listed_with_the_reason(trained: Trained) -> None:
    run, _, _, _ = trained
    assert [each.name for each in run.unsupported] == ["1", "3", "4", "6"]
    assert run.unsupported[0].reason == "ReLU has no program"


def test_products_outside_layers_are_listed_with_their_calls() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x) @ self.layer.weight
            return y

    model = Tied()
    with acf.offload(model, "reference") as run:
        model(torch.ones(2, 8))
    assert [(each.name, each.calls) for each in run.unsupported] == [("matmul", 1)]


def test_weights_that_did_not_change_travel_once() -> None:
    model, x = nn.Sequential(nn.Linear(16, 16, bias=False)), torch.ones(2, 16)
    device = Device("reference")
    with acf.offload(model, device), torch.no_grad():
        model(x)
        first = sum(span.nbytes for span in device.timeline.spans if span.engine == "h2d")
        model(x)
    both = sum(span.nbytes for span in device.timeline.spans if span.engine == "h2d")
    assert first == 2 * (2 * 16 + 16 * 16)
    assert both - first == 2 * 2 * 16


def test_a_move_sends_the_regrown_blocks_alone() -> None:
    model, x = nn.Sequential(nn.Linear(32, 32, bias=False)), torch.ones(2, 32)
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.5, block=8))
    layer, device = model[0], Device("reference")
    assert isinstance(layer, acf.nn.BlockSparseLinear)
    absent = (~layer.mask()).nonzero()[0]
    with acf.offload(model, device), torch.no_grad():
        model(x)
        before = len(device.timeline.spans)
        layer.move_blocks(acf.masks.Move(torch.tensor([3]), absent[:1], absent[1:]))
        expected = x @ layer.weight_matrix().T
        assert torch.allclose(model(x), expected, rtol=2e-2, atol=1e-2)
    sent = [span.nbytes for span in device.timeline.spans[before:] if span.engine == "h2d"]
    assert sorted(sent) == [2 * 8 * 8, 2 * 2 * 32]


def test_the_model_is_its_own_again_after_the_block() -> None:
    model, x = sparse_cnn(), batches(1)[0][0]
    expected = model(x)
    with acf.offload(model, "reference"):
        assert not torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)
    assert all("forward" not in vars(module) for module in model.modules())


def test_device_memory_is_returned_when_the_graph_is_gone() -> None:
    model, device = nn.Sequential(nn.Linear(16, 16)), Device("reference")
    free = device.free_bytes
    with acf.offload(model, device) as run:
        for _ in range(3):
            model(torch.ones(2, 16)).sum().backward()
        held = free - device.free_bytes
    assert held == 4096  # the weight's page
    del run


def test_layers_that_would_be_fused_run_one_by_one() -> None:
    model = acf.FusedSequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.5, block=8))
    with acf.offload(model, "reference") as run:
        model(torch.ones(2, 32))
    assert [layer.calls for layer in run.layers.values()] == [1, 1]


def test_a_model_without_a_supported_layer_is_refused() -> None:
    with pytest.raises(OffloadError, match="ReLU has no layer that runs on a device; those are Linear, Conv2d"):
        acf.offload(nn.ReLU(), "reference")


def test_an_input_that_bf16_would_spoil_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with (
        acf.offload(model, "reference"),
        pytest.raises(OffloadError, match=r"got an input of torch.float64, and devices multiply bf16"),
    ):
        model(torch.ones(2, 4, dtype=torch.float64))


def test_float64_weights_and_grouped_convolutions_stay_on_the_host() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.Linear(4, 4).double(), nn.Linear(4, 4))
    with acf.offload(model, "reference") as run:
        reasons = [each.reason for each in run.unsupported]
    assert reasons == [
        "a convolution of 2 groups has no program",
        "only float32 and bfloat16 weights have a program",
    ]
