"""GPUs as rooflines: published peaks, both sides of the ridge, launches, power."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import acf.sim
from acf.errors import AcfError
from acf.lowering import Gemm

H200, V100 = acf.sim.spec("gpu-h200"), acf.sim.spec("gpu-v100")


def product(m: int, k: int, n: int, density: float = 1.0) -> acf.Trace:
    a = np.random.default_rng(0).random((m, k)) < density
    return acf.Trace.from_matmuls([acf.Matmul("fc", "forward", a, np.ones((k, n)))])


@pytest.mark.parametrize(("name", "peak_flops"), [("gpu-v100", 125e12), ("gpu-h200", 989e12)])
def test_the_peak_is_the_published_one(name: str, peak_flops: float) -> None:
    assert acf.sim.spec(name).peak_flops == pytest.approx(peak_flops, rel=0.005)


def test_a_large_product_runs_at_the_measured_rate() -> None:
    result = acf.simulate(product(2048, 2048, 2048), replace(H200, launch_overhead_s=1e-12))
    assert 2 * 2048**3 / result.seconds == pytest.approx(791e12, rel=0.001)  # docs/results/kernels-h200.md


def test_a_thin_product_runs_at_the_rate_of_memory_after_its_launch() -> None:
    result = acf.simulate(product(1, 2048, 4096), H200)
    waited = ceil((2048 * 4096 + 2048) * 2 / 4.2e12 * H200.clock_hz)
    assert result.cycles == waited + H200.launch_cycles
    assert result.stalls["launch"] == H200.launch_cycles


def test_a_grouped_convolution_is_launched_once() -> None:
    import torch
    from torch import nn

    model = nn.Conv2d(32, 32, 3, groups=8)
    with acf.capture(model) as trace:
        model(torch.randn(1, 32, 8, 8))
    assert acf.simulate(trace, "gpu-h200").stalls["launch"] == H200.launch_cycles


def test_dense_kernels_gain_nothing_from_zeros() -> None:
    assert (
        acf.simulate(product(256, 256, 256, 0.1), "gpu-v100").cycles
        == acf.simulate(product(256, 256, 256), "gpu-v100").cycles
    )


@pytest.mark.parametrize(("density", "gain"), [(1.0, 1.0), (0.8, 1.25), (0.5, 2.0), (0.1, 2.0)])
def test_a_sparse_kernel_gains_at_most_twofold(density: float, gain: float) -> None:
    a = np.zeros((500, 1000), dtype=bool)
    a.flat[: int(density * a.size)] = True
    gemm = Gemm(a, np.ones((1000, 500), dtype=bool))
    sparse = acf.sim.spec("gpu-h200-tensordash")
    assert sparse == replace(H200, sparse_gain_limit=2.0)
    assert H200.count(gemm).cycles / sparse.count(gemm).cycles == pytest.approx(gain, rel=0.005)


def test_a_busy_chip_draws_its_board_power_and_a_waiting_one_little_more_than_idle() -> None:
    busy = acf.simulate(product(2048, 2048, 2048), replace(V100, launch_overhead_s=1e-12))
    on_chip_j = busy.energy_j - busy.energy_breakdown_j["dram"]
    assert on_chip_j / busy.seconds == pytest.approx(300, rel=0.01)
    waiting = acf.simulate(product(1, 8, 8), V100)
    assert waiting.energy_j / waiting.seconds == pytest.approx(40, rel=0.01)


@given(st.tuples(*[st.integers(1, 60)] * 3), st.floats(0, 1), st.floats(0, 1), st.floats(1, 2))
def test_every_slot_is_accounted_for_at_every_gain(
    sizes: tuple[int, int, int], a_density: float, b_density: float, limit: float
) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m)
    gemm = Gemm(rng.random((m, k)) < a_density, rng.random((k, n)) < b_density)
    count = replace(V100, sparse_gain_limit=limit).count(gemm)
    assert count.effectual_macs + sum(count.lost_slots.values()) == count.cycles * V100.macs_per_cycle
    assert min(count.lost_slots.values()) >= 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sparse_gain_limit": 3.0}, "sparse_gain_limit 3.0 is not within 1"),
        ({"sparse_gain_limit": 0.5}, "sparse_gain_limit 0.5 is not within 1"),
        ({"sustained_share": 1.2}, "sustained_share 1.2 is above 1"),
        ({"board_power_w": 30.0}, "board_power_w 30.0 does not exceed idle_power_w 40.0"),
        ({"tensor_macs": 0}, "tensor_macs 0 must be above 0"),
    ],
)
def test_an_impossible_machine_is_refused_in_one_line(values: dict[str, float], message: str) -> None:
    with pytest.raises(AcfError, match=message) as caught:
        replace(V100, **values)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
