"""Moves with gradients and weights at the edge of the number format: Inf under loss scaling, denormals, zeros."""

from pathlib import Path

import pytest
import torch
from torch import nn

import acf
from acf.nn import block_sparse_layers


def sparse_model(block: int = 8, side: int = 32) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(side, side), nn.ReLU(), nn.Linear(side, side))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=block))
    return model


def masks(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: layer.mask().clone() for name, layer in block_sparse_layers(model).items()}


def all_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    tensors = [*model.parameters()]
    for state in optimizer.state.values():
        tensors += [each for each in state.values() if isinstance(each, torch.Tensor)]
    return all(bool(each.isfinite().all()) for each in tensors)


def scaled_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, x: torch.Tensor
) -> None:
    optimizer.zero_grad()
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("policy", [acf.BlockDST, acf.SET])
def test_an_overflow_exactly_at_a_move_skips_the_step_and_the_move_uses_no_inf(policy: type) -> None:
    model = sparse_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    topology = acf.attach(model, optimizer, policy(total_steps=40, every=4, fraction=0.5, stop_at=1.0))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        scaled_step(model, optimizer, scaler, torch.randn(16, 32, generator=generator))
    before = masks(model), [each.detach().clone() for each in model.parameters()]
    scaled_step(model, optimizer, scaler, torch.full((16, 32), 1e30))  # the squares overflow: Inf gradients
    assert scaler.get_scale() == 2.0
    assert topology.step == 3, "a step that the scaler skips is no step"
    assert all(torch.equal(mask, before[0][name]) for name, mask in masks(model).items())
    assert all(torch.equal(each, kept) for each, kept in zip(model.parameters(), before[1], strict=True))
    scaled_step(model, optimizer, scaler, torch.randn(16, 32, generator=generator))
    assert topology.step == 4
    assert any(not torch.equal(mask, before[0][name]) for name, mask in masks(model).items()), "the move comes after"
    assert all_finite(model, optimizer)


def test_a_move_after_an_overflow_is_that_of_a_run_without_it() -> None:
    found = []
    for overflow in (False, True):
        model = sparse_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        acf.attach(model, optimizer, acf.BlockDST(total_steps=40, every=4, fraction=0.5, stop_at=1.0))
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=1000)
        generator = torch.Generator().manual_seed(1)
        for step in range(1, 9):
            if overflow and step in (4, 8):
                scaled_step(model, optimizer, scaler, torch.full((16, 32), 1e30))
            scaled_step(model, optimizer, scaler, torch.randn(16, 32, generator=generator))
        found.append((masks(model), [each.detach().clone() for each in model.parameters()]))
    assert all(torch.equal(mask, found[1][0][name]) for name, mask in found[0][0].items())
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


@pytest.mark.parametrize("method", ["bdwp", "sr-ste", "sdgp"])
def test_an_overflow_leaves_layers_with_groups_and_their_masks_as_they_are(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    acf.sparsify_(model, acf.NMSparsity(n=2, m=4, method=method))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaled_step(model, optimizer, scaler, torch.randn(16, 32))
    before = [each.detach().clone() for each in model.parameters()]
    scaled_step(model, optimizer, scaler, torch.full((16, 32), 1e30))
    assert all(torch.equal(each, kept) for each, kept in zip(model.parameters(), before, strict=True))
    scaled_step(model, optimizer, scaler, torch.randn(16, 32))
    assert any(not torch.equal(each, kept) for each, kept in zip(model.parameters(), before, strict=True))
    assert all_finite(model, optimizer)


@pytest.mark.parametrize("policy", [acf.BlockDST, acf.SET, acf.GradualPruning])
@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-30])
def test_weights_and_inputs_that_are_zero_or_denormal_move_without_nan(policy: type, scale: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    start = "dense" if policy is acf.GradualPruning else "sparse"
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8, init=start))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    acf.attach(model, optimizer, policy(total_steps=12, every=2))
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 32) * scale).square().mean().backward()
        optimizer.step()
    assert all_finite(model, optimizer)
    assert acf.weight_sparsity(model) == pytest.approx(0.5)


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
def test_a_layer_of_one_block_trains_and_never_loses_it(sparsity: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    acf.sparsify_(model, acf.BlockSparsity(sparsity, block=8, distribution="uniform"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    acf.attach(model, optimizer, acf.BlockDST(total_steps=8, every=2))
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    assert all(int(mask.sum()) == 1 for mask in masks(model).values())
    assert all_finite(model, optimizer)


@pytest.mark.parametrize("policy", [acf.BlockDST, acf.SET])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_a_layer_that_lost_all_blocks_gives_its_bias_and_the_others_move_on(policy: type, kind: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 32) if kind == "linear" else nn.Conv2d(32, 32, 3, padding=1) for _ in range(2)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1])
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    empty = block_sparse_layers(model)["0"]
    empty.keep_blocks(torch.empty(0, dtype=torch.int64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    topology = acf.attach(model, optimizer, policy(total_steps=12, every=2))
    before, bias = masks(model), empty.bias.detach().clone()
    for _ in range(12):
        x = torch.randn(4, 32) if kind == "linear" else torch.randn(2, 32, 4, 4)
        x.requires_grad_()
        assert torch.equal(empty(x), empty.bias.reshape(-1, *(1,) * (x.dim() - 2)).expand_as(x))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        assert not x.grad.any(), "nothing flows back through a layer without weights"
        optimizer.step()
    assert topology.step == 12
    assert empty.present_blocks == 0
    assert not torch.equal(empty.bias, bias)
    assert not torch.equal(masks(model)["2"], before["2"])
    assert all_finite(model, optimizer)


def test_a_layer_that_lost_all_blocks_is_saved_captured_and_made_dense(tmp_path: Path) -> None:
    model = sparse_model()
    block_sparse_layers(model)["0"].keep_blocks(torch.empty(0, dtype=torch.int64))
    x = torch.randn(8, 32)
    expected = model(x)
    acf.save_sparse(model, tmp_path / "model.safetensors")
    assert torch.equal(acf.load_sparse(tmp_path / "model.safetensors")(x), expected)
    with acf.capture(model) as trace:
        model(x).square().mean().backward()
    assert acf.simulate(trace, "acf-512").cycles > 0
    acf.densify_(model)
    assert not model[0].weight.any()
    assert torch.allclose(model(x), expected, atol=1e-6)
