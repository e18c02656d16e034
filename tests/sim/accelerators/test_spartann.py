"""SparTANN: the paper's figures, hand-worked cases, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import acf
from acf.cost.spartann import SPARTANN_FIGURES, dram_power_w
from acf.errors import AcfError
from acf.lowering import Gemm
from acf.sim.accelerators import SparTANN
from acf.sim.result import OpResult

PATIENT = 1e15  # bytes per second: memory never makes compute wait
SKIPPING = acf.sim.spec("spartann", dram_pin_bytes_per_s=PATIENT)
DENSE = replace(SKIPPING, skips_zeros=False)

# Densities of the output gradient in convolution layers, from GOLDEN row S6: zero skipping alone, and with DTS-0.5.
ALEXNET, ALEXNET_DTS, GOOGLENET, GOOGLENET_DTS = 0.238, 0.137, 0.113, 0.084


def backward_trace(density: float, pixels: int = 400, out: int = 96, channels: int = 64, seed: int = 0) -> acf.Trace:
    """Input and weight gradient of one layer whose output gradient has ``density``, to the nearest element."""
    ranks = np.random.default_rng(seed).permutation(pixels * out).reshape(pixels, out)
    gradient = ranks < round(density * ranks.size)
    return acf.Trace.from_matmuls(
        [
            acf.Matmul("conv", "input_grad", gradient, np.ones((out, channels))),
            acf.Matmul("conv", "weight_grad", gradient.T, np.ones((pixels, channels))),
        ]
    )


def speedup(density: float) -> float:
    trace = backward_trace(density)
    return acf.simulate(trace, SKIPPING).speedup_over(acf.simulate(trace, DENSE))


@pytest.mark.parametrize(
    ("density", "published"), [(ALEXNET, 4.20), (GOOGLENET, 8.88), (ALEXNET_DTS, 7.30), (GOOGLENET_DTS, 11.87)]
)
def test_published_speedups_follow_from_the_densities(density: float, published: float) -> None:
    assert speedup(density) == pytest.approx(published, rel=0.02)  # S6


def test_seventy_percent_zeros_give_the_speedup_of_squeezenet() -> None:
    assert round(speedup(0.3), 1) == 3.3  # S13: 1 / 0.3


@pytest.mark.parametrize("density", [0.02, 0.1, 0.3, 0.5, 0.8, 1.0])
def test_time_is_linear_in_the_density_of_the_gradient(density: float) -> None:
    trace = backward_trace(density)
    gradient = trace.tensors[trace.ops[0].a]
    share = acf.simulate(trace, SKIPPING).cycles / acf.simulate(trace, DENSE).cycles
    assert share == pytest.approx(gradient.nonzeros / gradient.size, rel=0.02)  # S14


def test_relu_halves_and_pooling_quarters_the_time_of_a_real_network() -> None:
    model = nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.MaxPool2d(2), nn.Flatten()
    )
    with acf.capture(model) as trace:
        model(torch.randn(2, 8, 16, 16, requires_grad=True)).square().sum().backward()
    skipped, dense = acf.simulate(trace, SKIPPING), acf.simulate(trace, DENSE)
    shares = {(op.name, op.phase): op.cycles / base.cycles for op, base in zip(skipped.ops, dense.ops, strict=True)}
    for phase in ("input_grad", "weight_grad"):
        assert shares["0", phase] == pytest.approx(0.5, abs=0.1)  # S14: ReLU leaves about half
        assert shares["2", phase] == pytest.approx(0.25, abs=0.02)  # S14: 2x2 max-pooling leaves 1 / 4
    assert shares["0", "forward"] == shares["2", "forward"] == 1.0


def watts(op: OpResult, spec: SparTANN) -> float:
    return sum(value for name, value in op.energy_j.items() if name != "dram") * spec.clock_hz / op.cycles


def test_on_chip_power_is_the_published_one() -> None:
    backward, weights = acf.simulate(backward_trace(ALEXNET), SKIPPING).ops
    assert watts(backward, SKIPPING) * 0.9 == pytest.approx(0.20, rel=0.03)  # S9; 0.9: without the controller's tenth
    assert watts(weights, SKIPPING) * 0.9 == pytest.approx(0.29, rel=0.03)


@pytest.mark.parametrize(("network", "published_w"), [("alexnet", 0.58), ("googlenet", 0.92)])
def test_power_with_dram_is_the_published_one(network: str, published_w: float) -> None:
    ops = acf.simulate(backward_trace(ALEXNET), SKIPPING).ops
    on_chip_w = sum(watts(op, SKIPPING) for op in ops) / 2
    traffic = SPARTANN_FIGURES[f"{network}_dram_bytes_per_s"].value
    assert on_chip_w + dram_power_w(traffic) == pytest.approx(published_w, rel=0.03)  # S9


@pytest.mark.parametrize(("name", "gops", "gops_per_watt"), [("spartann", 190, 254), ("spartann-bf16", 380, 648)])
def test_published_efficiency_counts_skipped_operations(name: str, gops: float, gops_per_watt: float) -> None:
    spec = acf.sim.spec(name)
    assert isinstance(spec, SparTANN)
    effective = spec.peak_flops * 11.87 / 1e9  # the best published speedup, GoogleNet with DTS-0.5
    ops = acf.simulate(backward_trace(ALEXNET), replace(spec, dram_pin_bytes_per_s=PATIENT)).ops
    traffic = (1.95e9 + 3.93e9) / 2  # the mean of both networks gives the 0.75 W of Table 2
    power_w = sum(watts(op, spec) for op in ops) / 2 + dram_power_w(traffic)
    assert effective == pytest.approx(gops, rel=0.01)  # S8
    assert effective / power_w == pytest.approx(gops_per_watt, rel=0.01)


@pytest.mark.parametrize(("density", "published"), [(ALEXNET, 0.78), (ALEXNET_DTS, 0.85)])
def test_skipping_saves_the_published_share_of_on_chip_energy(density: float, published: float) -> None:
    # S11 averages four networks and prints the densities of two; AlexNet's are nearest to the mean.
    trace = backward_trace(density)
    skipped, dense = (acf.simulate(trace, spec).energy_breakdown_j for spec in (SKIPPING, DENSE))
    saved = 1 - sum(skipped[part] for part in skipped if part != "dram") / sum(
        dense[part] for part in dense if part != "dram"
    )
    assert saved == pytest.approx(published, abs=0.03)


def test_area_is_the_published_one() -> None:
    area = acf.sim.spec("spartann").area_mm2
    assert area["mac"] == pytest.approx(0.69)  # S10
    assert area["sram"] == pytest.approx(3.56)
    assert sum(area.values()) == pytest.approx(4.74)
    assert sum(acf.sim.spec("spartann", macs=64, value_bytes=2).area_mm2.values()) == pytest.approx(4.32)  # Table 2


def test_channels_that_macs_do_not_divide_lose_slots_for_every_tap() -> None:
    gradient, windows = np.ones((4, 10), dtype=bool), np.ones((10, 3 * 40), dtype=bool)
    count = SKIPPING.count(Gemm(gradient, windows, phase="weight_grad", taps=3))
    assert count.cycles == 40 * 3 * 2  # 40 channels need two vectors of 32 at each of the three taps
    assert count.lost_slots == {"ineffectual": 0, "padding": 0, "edge": 40 * 3 * (64 - 40)}


def test_padding_takes_cycles_like_any_entry() -> None:
    gradient = np.zeros((1, 512), dtype=bool)
    gradient[0, 511] = True
    count = SKIPPING.count(Gemm(gradient, np.ones((512, 32), dtype=bool), phase="input_grad"))
    assert count.cycles == 2
    assert count.lost_slots["padding"] == 32


def test_a_column_longer_than_buffer_b_starts_again() -> None:
    gradient = np.zeros((1, 1024), dtype=bool)
    gradient[0, 512] = True  # the first row of the second cut: no gap before it
    count = SKIPPING.count(Gemm(gradient, np.ones((1024, 32), dtype=bool), phase="input_grad"))
    assert SKIPPING.column_rows == 512
    assert count.cycles == 1


@given(
    st.sampled_from(["forward", "input_grad", "weight_grad"]),
    st.tuples(*[st.integers(1, 40)] * 3),
    st.integers(1, 4),
    st.integers(1, 8),
    st.floats(0, 1),
)
def test_every_slot_is_accounted_for_in_every_phase(
    phase: str, sizes: tuple[int, int, int], taps: int, index_bits: int, density: float
) -> None:
    m, k, n = sizes
    rows, columns = (k, n * taps) if phase == "weight_grad" else (k * taps, n)
    rng = np.random.default_rng(m)
    gemm = Gemm(rng.random((m, rows)) < density, rng.random((rows, columns)) < 0.7, None, phase, taps)
    count = replace(SKIPPING, index_bits=index_bits).count(gemm)
    assert count.effectual_macs + sum(count.lost_slots.values()) == count.cycles * SKIPPING.macs_per_cycle
    assert min(count.lost_slots.values()) >= 0
    assert count.cycles <= DENSE.count(gemm).cycles


def test_tensors_are_streamed_again_for_every_tile() -> None:
    gradient, weights = np.ones((512, 100), dtype=bool), np.ones((100, 64), dtype=bool)
    backward = SKIPPING.count(Gemm(gradient, weights, phase="input_grad")).streamed_bytes
    # 51,200 entries of 5 bytes for both vectors of 32 channels; weights for both tiles of 256 positions; the results.
    assert backward == 51_200 * 2 * 5 + 2 * 6_400 * 4 + 512 * 64 * 4
    weight = SKIPPING.count(Gemm(gradient.T, np.ones((512, 64), dtype=bool), phase="weight_grad")).streamed_bytes
    assert weight == 51_200 * 2 * 5 + 512 * 64 * 4 + 6_400 * 4  # one cut of the columns: activations come once


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"macs": 0}, "macs 0 must be above 0"),
        ({"index_bits": 20}, "index_bits 20 is above 16"),
        ({"value_bytes": 1}, "value_bytes 1: SparTANN's power is published for 4"),
        ({"macs": 40_000}, "dense_buffer_b_bytes 65536 holds no vector of 40000 values"),
        ({"output_buffer_bytes": 64}, "output_buffer_bytes 64 holds no vector of 32 values"),
        ({"output_buffer_bytes": 1024}, "on_chip_bytes 107520 is not the 75776 bytes of the five buffers"),
        ({"technology_nm": 28}, "published for 65 nm only"),
    ],
)
def test_an_impossible_machine_is_refused_in_one_line(values: dict[str, int], message: str) -> None:
    with pytest.raises(AcfError, match=message) as caught:
        acf.sim.spec("spartann", **values)
    assert "\n" not in str(caught.value)
