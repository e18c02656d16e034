"""Rows T2 to T4 and T15 to T17: TensorDash's area, power and energy efficiency, and that it changes no value."""

import numpy as np

from acf.reproduce.row import Check, Row, absolute, from_inputs, holds, relative
from acf.reproduce.tensordash_speedup import DASH, EXPAND_3X3, speedup
from acf.sim import simulate, spec, spec_of_kind
from acf.sim.accelerators import TensorDash
from acf.sim.accelerators.functional import multiply
from acf.trace import Trace
from acf.zoo.synthetic import Zeros, conv_step, one_layer, square_convolution, squeezenet_layer

PAPER_SPEEDUP = 1.95


def area_overheads(data_type: str) -> tuple[float, float]:
    """Area of TensorDash over the baseline's: compute alone, and the whole chip."""
    dense, dash = (spec(name, data_type=data_type).area_mm2 for name in ("tensorcore", "tensordash"))
    compute = (dash["mac"] + dash["control"]) / dense["mac"]
    return compute, sum(dash.values()) / sum(dense.values())


def power_overhead(data_type: str = "fp16") -> float:
    """Power of TensorDash's compute over the baseline's: energies of one product over the same cycles."""
    trace = one_layer(square_convolution(16, 16, 8), 0.5, 1, seed=0)
    energy = simulate(trace, spec("tensordash", data_type=data_type)).energy_breakdown_j
    return (energy["mac"] + energy["control"]) / energy["mac"]


def t2() -> Row:
    """Area overhead."""
    compute, chip = area_overheads("fp16")
    _, bf16_chip = area_overheads("bf16")
    return Row(
        "area overhead 1.14x compute, +4.8 % chip",
        "Table IV, AM/BM/CM 58.6 mm2 each, scratchpads 3.95 and 5.9 mm2; bfloat16 cores from their published 1.16x",
        from_inputs(
            absolute("compute", 1.14, compute, 0.005, "x"),
            absolute("chip", 4.8, 100 * (chip - 1), 0.1, " %"),
            absolute("bf16 chip", 4.9, 100 * (bf16_chip - 1), 0.1, " %"),
        ),
    )


def t3() -> Row:
    """Power overhead."""
    return Row(
        "power overhead 1.09x",
        "sum of Table IV's components; the printed total (26,144 mW) is not their sum (25,903 mW)",
        from_inputs(relative("compute", 1.09, power_overhead(), 0.005, "x")),
    )


def t4() -> Row:
    """Compute energy efficiency."""
    return Row(
        "compute energy efficiency 1.8x, at most 3.67x, bf16 1.76x",
        "the paper's 1.95x speedup, or its depth 4, over the modelled power overhead; "
        "bfloat16 cores from their published 1.1x",
        from_inputs(
            relative("at 1.95x", 1.8, PAPER_SPEEDUP / power_overhead(), 0.01, "x"),
            relative("cap", 3.67, DASH.depth / power_overhead(), 0.01, "x"),
            relative("bf16 at 1.95x", 1.76, PAPER_SPEEDUP / power_overhead("bf16"), 0.01, "x"),
        ),
    )


def chip_efficiency(trace: Trace) -> float:
    """Energy of the dense baseline over TensorDash's, DRAM and on-chip memories included."""
    return simulate(trace, "tensorcore").energy_j / simulate(trace, "tensordash").energy_j


def zeros_for(target: float) -> float:
    """Fraction of zeros at which the SqueezeNet layer reaches a speedup of ``target``, by bisection."""
    low, high = 0.3, 0.9
    while high - low > 0.005:
        middle = (low + high) / 2
        gain = speedup(one_layer(squeezenet_layer(EXPAND_3X3), middle, 1, seed=0), DASH)
        low, high = (middle, high) if gain < target else (low, middle)
    return (low + high) / 2


def t15() -> Row:
    """Energy efficiency of the chip."""
    zeros = zeros_for(PAPER_SPEEDUP)
    at_speedup, saturated = (
        chip_efficiency(one_layer(squeezenet_layer(EXPAND_3X3), share, 4, seed=0)) for share in (zeros, 0.9999)
    )
    return Row(
        "chip energy efficiency 1.5x at the 1.95x speedup, saturating at 2.1x",
        f"SqueezeNet fire2.expand3x3, four images, {zeros:.0%} zeros for 1.95x and 99.99 % for saturation; DRAM, SRAM, "
        "scratchpads and leakage included",
        (relative("at 1.95x", 1.5, at_speedup, 0.15, "x"), relative("saturated", 2.1, saturated, 0.15, "x")),
        rests_on="`multicast` = 16, fitted: a read of on-chip memory serves 16 cores; without it memory dominates",
    )


def t16() -> Row:
    """A model almost without zeros."""
    layer = square_convolution(256, 256, 16, kernel=1)  # no padding, whose zeros would be skipped too
    shares = {f"conv{index}": (layer, Zeros(0.05, 0.05) if index == 0 else Zeros(0.0, 0.0)) for index in range(4)}
    trace = conv_step(shares, 2, seed=0)
    gain, efficiency = 100 * (speedup(trace, DASH) - 1), 100 * (chip_efficiency(trace) - 1)
    return Row(
        "a model with about 5 % zeros in a few layers: +1 % speed, -0.5 % energy efficiency",
        "four equal 1x1 layers, one with 5 % zeros",
        (
            _signed("speed", 1.0, gain),
            _signed("energy efficiency", -0.5, efficiency),
        ),
        rests_on="gating, an assumption: scheduler and staging buffers are off where at most 1 % of an operand is zero",
    )


def _signed(what: str, paper: float, ours: float) -> Check:
    """Within one percentage point of the paper's figure and of the same sign."""
    least = 0.01  # percentage points: enough to have a sign
    low, high = (max(least, paper - 1.0), paper + 1.0) if paper > 0 else (paper - 1.0, min(-least, paper + 1.0))
    return Check(what, f"{paper:+g} %", ours, low, high, "sign, 1 pp")


def t17() -> Row:
    """Values unchanged."""
    rng = np.random.default_rng(0)
    specs = [spec_of_kind(TensorDash, name) for name in ("tensordash", "tensordash-two-sided")]
    equal = []
    for zeros in (0.0, 0.3, 0.7, 1.0):
        a, b = (rng.integers(-99, 100, shape) * (rng.random(shape) >= zeros) for shape in ((9, 70), (70, 6)))
        equal += [bool(np.array_equal(multiply(a, b, dash), a @ b)) for dash in specs]
    return Row(
        "values unchanged: skipping ineffectual pairs alters no result",
        "integers through the PE-level model, one- and two-sided, four shares of zeros",
        (holds("equal to the dense product", all(equal)),),
    )
