"""Rows T1 and T5 to T11: what TensorDash's scheduler gains over dense tensor cores."""

from dataclasses import fields, replace

import numpy as np

from acf.reproduce.row import Row, absolute, at_most, from_inputs, holds, relative
from acf.sim import simulate, spec, spec_of_kind
from acf.sim.accelerators import TensorCore, TensorDash
from acf.sim.accelerators.moves import (
    FIVE_DEEP_MOVES,
    PAPER_MOVES,
    THREE_DEEP_MOVES,
    TWO_DEEP_MOVES,
    WIDE_MOVES,
    Moves,
    lane_levels,
)
from acf.trace import Trace
from acf.zoo.shapes import ProductShape
from acf.zoo.synthetic import Zeros, conv_step, one_layer, square_convolution, squeezenet_layer

# SqueezeNet 1.1 begins with conv1 and fire2: squeeze 1x1, expand 1x1, expand 3x3.
EXPAND_1X1, EXPAND_3X3 = "features.3.expand1", "features.3.expand3"
RAGGED_LAYERS = (  # channels and pixels that the tiles of a core do not divide
    EXPAND_3X3,
    "features.3.squeeze",
    "features.6.expand3",
    "features.9.expand3",
    "features.11.expand3",
    "features.10.squeeze",
)

# The published speedups are of compute: DRAM is fast enough never to be the bottleneck.
QUICK_MEMORY_BYTES_PER_S = 1e15
DASH = spec_of_kind(TensorDash, "tensordash", dram_pin_bytes_per_s=QUICK_MEMORY_BYTES_PER_S)


def speedup(trace: Trace, dash: TensorDash) -> float:
    """Cycles of dense tensor cores of the same geometry and bandwidth over those of ``dash``."""
    shared = {item.name: getattr(dash, item.name) for item in fields(TensorCore) if item.name != "scratchpads_mm2"}
    dense = TensorCore(**shared)
    return simulate(trace, dash).speedup_over(simulate(trace, dense))


def random_layer(zeros: float, seed: int = 0) -> Trace:
    """A 1x1 convolution of 512 channels on 16 x 16 pixels, four images: no padding, no partial tiles."""
    return one_layer(square_convolution(512, 512, 16, kernel=1), zeros, batch=4, seed=seed)


def t1() -> Row:
    """Peak of the dense baseline."""
    return Row(
        "16.4 TFLOPS peak",
        "256 cores x 4x4 PEs x 4 MACs, 500 MHz",
        from_inputs(relative("peak", 16.4, spec("tensorcore").peak_flops / 1e12, 0.005, " TFLOPS")),
    )


def t5() -> Row:
    """Random tensors, Fig. 15."""

    def mean(layer: ProductShape, zeros: float) -> float:
        return float(np.mean([speedup(one_layer(layer, zeros, 2, seed), DASH) for seed in range(10)]))

    figures = {zeros: mean(squeezenet_layer(EXPAND_3X3), zeros) for zeros in (0.2, 0.9, 0.99)}
    literal = mean(squeezenet_layer(EXPAND_1X1), 0.2)
    return Row(
        "speedup on random tensors follows their zeros and never exceeds 4",
        "SqueezeNet 1.1 fire2.expand3x3 (16 to 64 channels, 3x3, 55 x 55), two images, 10 samples, three products. "
        "Memory never decides, here and in T6 to T11",
        (
            relative("20 % zeros", 1.23, figures[0.2], 0.05, "x"),
            relative("90 % zeros", 3.7, figures[0.9], 0.05, "x"),
            relative("99 % zeros", 3.99, figures[0.99], 0.05, "x"),
            at_most("never above", 4.0, max(figures.values()), "x"),
        ),
        rests_on="a substituted layer: the third convolution, literally, is expand1x1 before it, which reduces over 16 "
        f"values, one buffer full, and gains {literal:.2f}x at 20 % zeros",
    )


def t6() -> Row:
    """Depth of the staging buffers, Fig. 12."""
    trace = random_layer(0.6)
    patterns = {2: TWO_DEEP_MOVES, 3: THREE_DEEP_MOVES, 4: PAPER_MOVES, 5: FIVE_DEEP_MOVES}
    gains = {depth: speedup(trace, replace(DASH, depth=depth, moves=moves)) for depth, moves in patterns.items()}
    return Row(
        "deeper staging buffers gain more, less and less",
        "iid 60 % zeros; four moves at 2 and 3 deep, eight beyond",
        (
            relative("2 deep", 1.5, gains[2], 0.08, "x"),
            relative("4 deep", 1.95, gains[4], 0.08, "x"),
            relative("5 deep", 2.05, gains[5], 0.08, "x"),
            holds(f"monotone over 2 to 5 deep (3 deep: {gains[3]:.2f}x)", sorted(gains.values()) == [*gains.values()]),
        ),
        rests_on="3- and 5-deep patterns of our own; none is printed",
    )


def t7() -> Row:
    """Rows per tile, Fig. 13."""
    trace = random_layer(0.615)
    # 64 x 64 PEs in all: one read of a column operand is multicast to all cores of a column.
    gains = {
        rows: speedup(trace, replace(DASH, rows=rows, cores=1024 // rows, multicast=max(16, 64 // rows)))
        for rows in (1, 2, 4, 8, 16)
    }
    return Row(
        "more rows wait for the densest",
        "iid 61.5 % zeros, 4 columns, 1 to 16 rows, the same number of PEs in a grid that shares on-chip reads alike",
        (
            relative("1 row", 2.2, gains[1], 0.10, "x"),
            relative("16 rows", 1.8, gains[16], 0.10, "x"),
            holds("monotone over 1 to 16 rows", sorted(gains.values(), reverse=True) == [*gains.values()]),
        ),
    )


def t8() -> Row:
    """Columns per tile."""
    shares = {f"conv{index}": (squeezenet_layer(name), Zeros(0.6, 0.6)) for index, name in enumerate(RAGGED_LAYERS)}
    trace = conv_step(shares, 4, seed=0)
    # More columns per core make a larger machine: bank bandwidth grows with them.
    gains = [speedup(trace, replace(DASH, columns=columns, bank_blocks_per_cycle=columns)) for columns in (4, 8, 16)]
    loss = 100 * max(0.0, 1 - min(gains) / gains[0])
    return Row(
        "columns 4 to 16 cost at most 3 %",
        "six layers of SqueezeNet 1.1, 60 % zeros, four images; the dense baseline has the same columns, and on-chip "
        "banks grow with them",
        (at_most("largest loss", 3.0, loss, " %"),),
    )


def t9() -> Row:
    """Wide PEs, Fig. 14."""
    wide = replace(DASH, cores=64, lanes=16, depth=3, moves=WIDE_MOVES)
    return Row(
        "16-lane PEs, 3 deep, 8 moves: 1.85x with six scheduler levels",
        "iid 60 % zeros; levels derived from the pattern",
        (
            relative("speedup", 1.85, speedup(random_layer(0.6), wide), 0.08, "x"),
            absolute("levels, 16 lanes", 6, len(lane_levels(16, WIDE_MOVES)), 0),
            absolute("levels, 4 lanes", 4, len(lane_levels(4, PAPER_MOVES)), 0),
        ),
        rests_on="a 16-lane pattern of our own, chosen to need the published six levels",
    )


def random_patterns(count: int, seed: int) -> list[Moves]:
    """Patterns of eight moves like the paper's: its four within a lane, and four random ones from other lanes."""
    rng = np.random.default_rng(seed)
    aside = [(step, offset) for step in (1, 2, 3) for offset in (1, 2, 3)]
    return [PAPER_MOVES[:4] + tuple(aside[place] for place in rng.permutation(9)[:4]) for _ in range(count)]


def t10() -> Row:
    """Other connectivity of the same width."""
    trace = random_layer(0.6)
    paper = speedup(trace, DASH)
    gains = [speedup(trace, replace(DASH, moves=moves)) / paper - 1 for moves in random_patterns(30, seed=0)]
    worst = 100 * max(abs(gain) for gain in gains)
    return Row(
        "the connectivity pattern matters at most 5 %",
        "30 random patterns of eight moves, four of them aside; iid 60 % zeros",
        (at_most("largest deviation from the paper's pattern", 5.0, worst, " %"),),
    )


def t11() -> Row:
    """Never slower than dense, never above the depth."""
    rng = np.random.default_rng(0)
    gains = []
    for zeros in (0.0, 0.003, 0.05, 0.5, 0.95, 1.0):
        in_channels, out_channels, size = (int(number) for number in rng.integers(1, 40, 3))
        layer = square_convolution(in_channels, out_channels, size, kernel=int(rng.choice([1, 3])))
        gains.append(speedup(one_layer(layer, zeros, 2, seed=1), replace(DASH, cores=1)))
    return Row(
        "never slower than dense: speedup in [1, depth] for any input",
        "random shapes and shares of zeros on one core, all-dense and all-zero included; a property test does more",
        (holds(f"1 <= {min(gains):.2f} ... {max(gains):.2f} <= 4", min(gains) >= 1 and max(gains) <= 4),),
    )
