"""Cycles of fixed products on TensorDash variants, and inputs at the edge of what a machine can be given."""

import json
from pathlib import Path

import numpy as np
import pytest

import acf
from acf.lowering import matrix_products
from acf.sim import find_architecture
from acf.trace import BitTensor, TracedConv, TracedOp

GOLDEN = json.loads((Path(__file__).parent / "golden" / "tensordash_cycles.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["configuration"])
def test_a_fixed_product_takes_the_recorded_cycles(case: dict[str, int | str]) -> None:
    rng = np.random.default_rng(GOLDEN["seed"])
    a, b = rng.random((64, 300)) >= 0.6, rng.random((300, 40)) >= 0.2
    _, spec = find_architecture(case["configuration"])
    count = spec.count(next(_gemms(a, b)))
    assert count.cycles == case["cycles"], case["reason"]


def _gemms(a: np.ndarray, b: np.ndarray):
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", a, b)])
    return iter(matrix_products(trace, trace.ops[0]))


@pytest.mark.parametrize("phase", ["forward", "weight_grad", "input_grad"])
@pytest.mark.parametrize(("batch", "channels"), [(0, 8), (2, 0), (1, 3), (2, 8)])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_layers_of_nothing_of_zeros_and_of_ones_are_played(phase: str, batch: int, channels: int, value: float) -> None:
    conv = TracedConv((3, 3), stride=(2, 2), padding=(1, 1), input_size=(6, 6))
    tensors = {
        "activation": BitTensor.from_array(np.full((batch, channels, 6, 6), value)),
        "weight": BitTensor.from_array(np.ones((8, 9 * channels))),
        "gradient": BitTensor.from_array(np.full((batch, 8, 3, 3), value)),
    }
    operands = {
        "forward": ("activation", "weight"),
        "weight_grad": ("gradient", "activation"),
        "input_grad": ("gradient", "weight"),
    }[phase]
    trace = acf.Trace([TracedOp("conv", phase, *operands, conv=conv)], tensors)
    dense = acf.simulate(trace, acf.sim.spec("tensorcore", cores=1, dram_pin_bytes_per_s=1e15))
    dash = acf.simulate(trace, acf.sim.spec("tensordash", cores=1, dram_pin_bytes_per_s=1e15))
    assert dash.cycles <= dense.cycles <= 4 * dash.cycles + 36
    assert (dash.cycles == 0) == (batch * channels == 0)


def test_one_lane_and_one_step_is_a_dense_machine() -> None:
    a, b = np.eye(8), np.ones((8, 8))
    spec = acf.sim.spec("tensordash", cores=1, lanes=1, depth=1, moves=((0, 0),))
    assert spec.count(next(_gemms(a, b))).cycles == 2 * 2 * 8
