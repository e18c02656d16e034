"""Rows S4 to S14: accuracy with Dynamic Threshold Scaling, and SparTANN, its accelerator."""

from dataclasses import replace

import numpy as np

from acf.cost.spartann import SPARTANN_FIGURES, dram_power_w
from acf.reproduce.row import Check, Row, absolute, from_inputs, relative
from acf.reproduce.spartann_measured import density_record, measured_savings, measured_speedups
from acf.reproduce.spartann_workloads import alexnet, backward_trace, googlenet
from acf.sim import simulate, spec_of_kind
from acf.sim.accelerators import SparTANN
from acf.trace import Matmul, Trace

QUICK_MEMORY_BYTES_PER_S = 1e15  # the published speedups are of compute: DRAM never stalls
SKIPPING = spec_of_kind(SparTANN, "spartann", dram_pin_bytes_per_s=QUICK_MEMORY_BYTES_PER_S)
DENSE = replace(SKIPPING, skips_zeros=False)
BF16 = spec_of_kind(SparTANN, "spartann-bf16", dram_pin_bytes_per_s=QUICK_MEMORY_BYTES_PER_S)

# Density of the output gradients and the published speedup: zero skipping alone, then with DTS at 0.5.
PUBLISHED_SPEEDUPS = {
    "AlexNet": (0.238, 4.20),
    "GoogLeNet": (0.113, 8.88),
    "AlexNet, DTS": (0.137, 7.30),
    "GoogLeNet, DTS": (0.084, 11.87),
}


def gradient_step(density: float, pixels: int = 400, out_channels: int = 100, in_channels: int = 64) -> Trace:
    """Both gradient products of a layer whose output gradient has exactly ``density``, at random positions."""
    gradient = np.zeros((pixels, out_channels), dtype=bool)
    gradient.flat[np.random.default_rng(0).permutation(gradient.size)[: round(density * gradient.size)]] = True
    return Trace.from_matmuls(
        [
            Matmul("conv", "input_grad", gradient, np.ones((out_channels, in_channels))),
            Matmul("conv", "weight_grad", gradient.T, np.ones((pixels, in_channels))),
        ]
    )


def skipping_speedup(density: float) -> float:
    """Cycles of the dense machine over those of the one that skips."""
    trace = gradient_step(density)
    return simulate(trace, SKIPPING).speedup_over(simulate(trace, DENSE))


def on_chip_watts(spec: SparTANN) -> list[float]:
    """Active power on chip in W: of the input gradient, and of the weight gradient."""
    ops = simulate(gradient_step(0.238), spec).ops
    return [
        sum(joules for part, joules in op.energy_j.items() if part != "dram") * spec.clock_hz / op.cycles for op in ops
    ]


def s4() -> Row:
    """Accuracy with sparsified gradients."""
    return Row(
        "CIFAR-10 82.13 % dense, 81.41 % with DTS-0.5, 80.56 % with DTS-0.7",
        "training runs, at least three seeds each",
        because="it needs training runs; `acf bench accuracy --methods dense,dts-0.5,dts-0.7` makes them",
    )


def s6() -> Row:
    """Speedup of the convolutions."""
    checks = [
        relative(f"{name} at {density:.1%}", paper, skipping_speedup(density), 0.02, "x")
        for name, (density, paper) in PUBLISHED_SPEEDUPS.items()
    ]
    published = {name: paper for name, (_, paper) in PUBLISHED_SPEEDUPS.items()}
    return Row(
        "conv-layer training speedup by zero skipping, and with DTS",
        "random gradients, first of the densities that the published speedups imply, then of those measured by layer: "
        f"{density_record()['source']}; gradient passes, padding of relative indices counted",
        (*from_inputs(*checks), *measured_speedups(SKIPPING, published)),
        rests_on="densities that are the reciprocals of the printed speedups, the paper does not print them; and on "
        "short training runs for the measured ones",
    )


def s8() -> Row:
    """Effective throughput and efficiency."""
    checks = []
    gain = PUBLISHED_SPEEDUPS["GoogLeNet, DTS"][1]
    traffic = sum(SPARTANN_FIGURES[f"{name}_dram_bytes_per_s"].value for name in ("alexnet", "googlenet")) / 2
    for name, spec, gops, gops_per_w in (("fp32", SKIPPING, 190, 254), ("bf16", BF16, 380, 648)):
        effective = spec.peak_flops * gain / 1e9
        watts = sum(on_chip_watts(spec)) / 2 + dram_power_w(traffic)
        checks.append(relative(f"{name} throughput", gops, effective, 0.01, " GOPS"))
        checks.append(relative(f"{name} efficiency", gops_per_w, effective / watts, 0.01, " GOPS/W"))
    return Row(
        "190 GOPS and 254 GOPS/W in fp32, 380 and 648 in bf16, skipped operations counted",
        "peak times the best published speedup; mean power of both passes with DRAM at the mean published traffic",
        from_inputs(*checks),
    )


def s9() -> Row:
    """Power."""
    watts = on_chip_watts(SKIPPING)
    control = 1 - SPARTANN_FIGURES["control_share"].value
    checks = [
        relative(f"on chip, {name}", paper, own * control, 0.03, " W")
        for name, paper, own in (("BP", 0.20, watts[0]), ("WU", 0.29, watts[1]))
    ]
    for network, paper in (("alexnet", 0.58), ("googlenet", 0.92)):
        traffic = SPARTANN_FIGURES[f"{network}_dram_bytes_per_s"].value
        checks.append(relative(f"with DRAM, {network}", paper, sum(watts) / 2 + dram_power_w(traffic), 0.03, " W"))
    return Row(
        "0.58 W at 1.95 GB/s, 0.92 W at 3.93 GB/s; on chip 0.20 W BP, 0.29 W WU",
        "160 pJ per byte at the published traffic. Power on chip by pass is an input of the model, read as without the "
        "controller's tenth",
        from_inputs(*checks),
    )


def s10() -> Row:
    """Area."""
    area = spec_of_kind(SparTANN, "spartann").area_mm2
    return Row(
        "4.74 mm2 = 0.69 MACs + 3.56 buffers + rest",
        "65 nm; the published split is an input of the model",
        from_inputs(
            relative("total", 4.74, sum(area.values()), 0.05, " mm2"),
            relative("MACs", 0.69, area["mac"], 0.05, " mm2"),
            relative("buffers", 3.56, area["sram"], 0.05, " mm2"),
        ),
    )


def saved_on_chip(density: float) -> float:
    """Percent of on-chip energy that skipping saves."""
    trace = gradient_step(density)
    skipping, dense = (
        sum(joules for part, joules in simulate(trace, spec).energy_breakdown_j.items() if part != "dram")
        for spec in (SKIPPING, DENSE)
    )
    return 100 * (1 - skipping / dense)


def s11() -> Row:
    """Energy saved."""
    checks = [
        absolute("on chip, skipping", 78, saved_on_chip(PUBLISHED_SPEEDUPS["AlexNet"][0]), 3, " %"),
        absolute("on chip, DTS", 85, saved_on_chip(PUBLISHED_SPEEDUPS["AlexNet, DTS"][0]), 3, " %"),
    ]
    machine = spec_of_kind(SparTANN, "spartann")
    for name, layers in (("AlexNet", alexnet()), ("GoogLeNet", googlenet())):
        trace = backward_trace(layers, PUBLISHED_SPEEDUPS[f"{name}, DTS"][0])
        dense = simulate(trace, replace(machine, skips_zeros=False))
        saved = 100 * (1 - simulate(trace, machine).energy_j / dense.energy_j)
        checks.append(Check(f"total, {name}, DTS", "83 to 84 %", saved, 80.0, 87.0, "3 pp"))
    return Row(
        "on-chip energy -78 % by skipping, -85 % with DTS; total -83 to -84 % for large nets",
        "on chip: AlexNet's densities, nearest to the mean of four networks; total: convolutions of both networks, an "
        "image at a time, tiles streamed from DRAM",
        (*checks, *measured_savings(SKIPPING)),
        rests_on="the densities of S6, and an assumed order of loops",
    )


def s12() -> Row:
    """Fine-tuning."""
    return Row(
        "fine-tuning CIFAR-10 to CIFAR-100: 4.17x by skipping, 4.84x with DTS",
        "CIFAR-100",
        because="CIFAR-100 is not at hand; capture a fine-tuning step on it and play it on spartann",
    )


def s13() -> Row:
    """SqueezeNet."""
    return Row(
        "SqueezeNet: 70 % zeros in the output gradient give 3.3x",
        "arithmetic, 1 / 0.3 as printed to a tenth, through the machine",
        from_inputs(absolute("speedup", 3.3, skipping_speedup(0.3), 0.05, "x")),
    )


def s14() -> Row:
    """Linearity."""
    checks = [
        absolute(
            f"share of dense cycles at density {density:g}", density, 1 / skipping_speedup(density), 0.02 * density
        )
        for density in (0.05, 0.25, 0.5, 1.0)
    ]
    return Row(
        "latency is linear in density (ReLU leaves about 1/2, KxK max-pooling 1/K^2)",
        "random gradients; a test plays a real small net with ReLU and pooling",
        tuple(checks),
    )
