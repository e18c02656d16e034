"""Measuring which layers pay; nothing here asserts a speed."""

import pytest
import torch
from torch import nn

from acf.errors import SparsityError
from acf.nn import BlockSparsity, faster_layers, sparsify_, time_layers
from acf.nn.timing import layer_step

SPEC = BlockSparsity(0.75, block=16)


def model_and_example() -> tuple[nn.Module, torch.Tensor]:
    layers = (
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3),
        nn.Flatten(),
        nn.Linear(32 * 16, 32),
        nn.Linear(32, 5),
    )
    return nn.Sequential(*layers), torch.randn(2, 3, 8, 8)


def test_every_layer_is_measured_or_says_why_not():
    model, example = model_and_example()
    before = {name: id(module) for name, module in model.named_modules()}
    timings = {timing.name: timing for timing in time_layers(model, example, SPEC, rounds=1)}
    assert list(timings) == ["0", "2", "4", "5"]
    assert "thinner than a 16 x 16 block" in timings["0"].reason
    assert timings["2"].input_shape == (2, 32, 6, 6)
    assert timings["2"].ratio > 0
    assert timings["5"].ratio is None
    assert before == {name: id(module) for name, module in model.named_modules()}


def test_a_measured_layer_says_how_far_its_runs_spread():
    (timing,) = time_layers(nn.Sequential(nn.Linear(64, 64)), torch.randn(8, 64), SPEC, rounds=3)
    assert timing.spread is not None
    assert timing.spread >= 0


def test_the_filter_takes_exactly_the_layers_that_pay(monkeypatch):
    model, example = model_and_example()
    seconds = iter(
        [1.0, 1.0, 4.0, 2.0, *[1.0, 1.0, 4.0, 8.0]]
    )  # rounds=1: warm up, then dense and sparse of each layer
    monkeypatch.setattr("acf.nn.timing.seconds_of", lambda step, x, calls: next(seconds))
    monkeypatch.setattr("acf.nn.timing.time_layers.__defaults__", (1, False))
    takes = faster_layers(model, example, SPEC)
    summary = sparsify_(model, SPEC, filter_fn=takes)
    assert [layer.name for layer in summary.sparse] == ["2"]


def test_a_layer_that_the_example_does_not_reach_is_said_to_be_so():
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    timings = {timing.name: timing for timing in time_layers(Unused(), (torch.randn(4, 16),), SPEC, rounds=1)}
    assert timings["used"].ratio is not None
    assert timings["unused"].reason == "the example does not reach it"


def test_a_step_gives_the_gradients_of_the_input_and_of_every_trained_parameter():
    layer, x = nn.Linear(3, 2), torch.ones(4, 3)
    layer.bias.requires_grad_(False)
    input_grad, weight_grad = layer_step(layer, x)()
    torch.testing.assert_close(input_grad, layer.weight.sum(0).expand(4, 3))
    torch.testing.assert_close(weight_grad, torch.full((2, 3), 4.0))
    assert layer.weight.grad is None


def test_cuda_graphs_are_refused_where_the_model_is_not_on_a_gpu():
    with pytest.raises(SparsityError, match="needs the model and its example on a GPU; move both there"):
        time_layers(nn.Sequential(nn.Linear(16, 16)), torch.randn(4, 16), SPEC, cuda_graphs=True)
