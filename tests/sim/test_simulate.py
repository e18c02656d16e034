"""Playing traces: what must hold on every architecture, and hand-worked cases."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import acf
from acf.lowering import dense_macs, effectual_macs
from acf.sim import ARCHITECTURES
from acf.sim.result import Result

PATIENT = 1e15  # bytes per second: memory never makes compute wait


def random_trace(
    seed: int, m: int, k: int, n: int, densities: tuple[float, float], phase: str = "forward"
) -> acf.Trace:
    rng = np.random.default_rng(seed)
    a, b = rng.random((m, k)) < densities[0], rng.random((k, n)) < densities[1]
    return acf.Trace.from_matmuls([acf.Matmul("fc", phase, a, b)])


SIZES = st.integers(0, 70)
DENSITIES = st.tuples(st.floats(0, 1), st.floats(0, 1))


@pytest.mark.parametrize("name", ARCHITECTURES)
@given(SIZES, SIZES, SIZES, DENSITIES, st.integers(0, 999))
def test_every_slot_is_an_effectual_mac_or_lost_for_a_named_reason(
    name: str, m: int, k: int, n: int, densities: tuple[float, float], seed: int
) -> None:
    trace = random_trace(seed, m, k, n, densities)
    result = acf.simulate(trace, name)
    busy = result.utilization * result.cycles
    assert busy + sum(result.stalls.values()) == pytest.approx(result.cycles)
    assert all(slots >= 0 for op in result.ops for slots in op.lost_slots.values())
    assert sum(op.effectual_macs for op in result.ops) == effectual_macs(trace)
    assert sum(op.dense_macs for op in result.ops) == dense_macs(trace)
    assert result.energy_j >= 0
    assert result.energy_j == pytest.approx(sum(result.energy_breakdown_j.values()))


@given(SIZES, SIZES, SIZES, DENSITIES, st.integers(0, 999))
def test_tensordash_is_never_slower_than_dense_and_never_above_its_depth(
    m: int, k: int, n: int, densities: tuple[float, float], seed: int
) -> None:
    trace = random_trace(seed, m, k, n, densities)
    dense = acf.simulate(trace, acf.sim.spec("tensorcore", cores=2, dram_pin_bytes_per_s=PATIENT))
    skipping = acf.simulate(trace, acf.sim.spec("tensordash", cores=2, dram_pin_bytes_per_s=PATIENT))
    assert skipping.cycles <= dense.cycles
    # Tiles are handed out one by one: 4x holds for the work, and for the makespan up to one round of tiles.
    assert dense.cycles <= 4 * skipping.cycles + -(-k // 4)


def test_the_dense_baseline_has_the_published_peak() -> None:
    assert acf.sim.spec("tensorcore").peak_flops == pytest.approx(16.4e12, rel=0.005)


def test_dense_tensor_cores_take_one_cycle_per_four_by_four_by_four() -> None:
    trace = random_trace(0, 64, 64, 64, (1, 1))
    result = acf.simulate(trace, acf.sim.spec("tensorcore", cores=1, dram_pin_bytes_per_s=PATIENT))
    assert result.cycles == 16 * 16 * 16
    assert result.utilization == 1.0


def test_tensordash_skips_the_operand_with_more_zeros() -> None:
    spec = acf.sim.spec("tensordash", cores=1, dram_pin_bytes_per_s=PATIENT)
    for densities in ((1.0, 0.0), (0.0, 1.0)):
        assert acf.simulate(random_trace(0, 16, 64, 16, densities), spec).cycles == 4 * 4 * 4


@pytest.mark.parametrize("phase", ["forward", "input_grad", "weight_grad"])
def test_the_paper_skips_weights_in_no_pass(phase: str) -> None:
    spec = acf.sim.spec("tensordash", cores=1, dram_pin_bytes_per_s=PATIENT, skipped_operand="paper")
    dense_activations = acf.simulate(random_trace(0, 16, 64, 16, (1.0, 0.0), phase), spec)
    sparse_activations = acf.simulate(random_trace(0, 16, 64, 16, (0.0, 1.0), phase), spec)
    assert sparse_activations.cycles == 4 * 4 * 4
    assert dense_activations.cycles == (4 * 4 * 4 if phase == "weight_grad" else 4 * 4 * 16)


@given(SIZES, SIZES, SIZES, DENSITIES, st.integers(0, 999))
def test_skipping_on_two_sides_multiplies_the_effectual_pairs_alone(
    m: int, k: int, n: int, densities: tuple[float, float], seed: int
) -> None:
    trace = random_trace(seed, m, k, n, densities)
    two_sided = acf.sim.spec("tensordash", cores=2, dram_pin_bytes_per_s=PATIENT, sides=2, bypass_zeros_share=0.0)
    result = acf.simulate(trace, two_sided)
    assert sum(op.lost_slots.get("ineffectual", 0) for op in result.ops) == 0
    assert (
        result.cycles <= acf.simulate(trace, acf.sim.spec("tensorcore", cores=2, dram_pin_bytes_per_s=PATIENT)).cycles
    )


def test_zeros_on_both_sides_gain_more_than_on_one() -> None:
    trace = random_trace(0, 64, 512, 64, (0.5, 0.5))
    one_sided = acf.simulate(trace, acf.sim.spec("tensordash", cores=1, dram_pin_bytes_per_s=PATIENT))
    two_sided = acf.simulate(trace, acf.sim.spec("tensordash", cores=1, dram_pin_bytes_per_s=PATIENT, sides=2))
    assert two_sided.speedup_over(one_sided) > 1.15


def test_an_operand_without_zeros_runs_dense_with_its_control_gated() -> None:
    dense = acf.simulate(random_trace(0, 64, 256, 64, (1, 1)), "tensordash")
    assert dense.energy_breakdown_j["control"] == 0
    assert dense.cycles == acf.simulate(random_trace(0, 64, 256, 64, (1, 1)), "tensorcore").cycles


def test_tensordash_power_overhead_is_the_published_one() -> None:
    dash = acf.simulate(random_trace(0, 64, 256, 64, (0.5, 1)), "tensordash").energy_breakdown_j
    assert (dash["mac"] + dash["control"]) / dash["mac"] == pytest.approx(1.09, abs=0.005)


def test_the_same_trace_gives_the_same_cycles_twice() -> None:
    trace = random_trace(3, 100, 90, 80, (0.3, 0.6))
    for name in ARCHITECTURES:
        assert acf.simulate(trace, name) == acf.simulate(trace, name)


def test_speedup_is_a_ratio_of_seconds() -> None:
    trace = random_trace(0, 64, 64, 64, (1, 1))
    slow = acf.simulate(trace, acf.sim.spec("tensorcore", clock_hz=250e6, dram_pin_bytes_per_s=PATIENT))
    fast = acf.simulate(trace, acf.sim.spec("tensorcore", clock_hz=500e6, dram_pin_bytes_per_s=PATIENT))
    assert fast.speedup_over(slow) == pytest.approx(2.0)


def test_no_speedup_exists_for_a_step_of_nothing() -> None:
    nothing = acf.simulate(random_trace(0, 0, 0, 0, (1, 1)), "tensorcore")
    assert nothing.cycles == 0
    with pytest.raises(acf.AcfError, match="took 0 cycles"):
        nothing.speedup_over(nothing)


def test_a_result_survives_json() -> None:
    result = acf.simulate(random_trace(0, 40, 50, 60, (0.5, 0.5)), "tensordash")
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_foreign_dictionary_is_no_result() -> None:
    with pytest.raises(acf.AcfError, match="not a saved result"):
        Result.from_dict({"cycles": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"macs_per_cycle": -1}, "result.macs_per_cycle is -1, and no machine counts that"),
        ({"clock_hz": 0.0}, "result.clock_hz is 0.0, and no machine counts that"),
        ({"clock_hz": float("nan")}, "clock_hz is nan and no finite number"),
        ({"technology_nm": "65"}, "technology_nm is '65' and no integer"),
        ({"notes": "a"}, "notes is 'a' and no list"),
        ({"ops": {"dense_macs": -1}}, r"result.ops.0.dense_macs is -1, and no machine counts that"),
        ({"ops": {"cycles": 1.5}}, r"ops.0.cycles is 1.5 and no integer"),
        ({"ops": {"energy_j": {"mac": -1e-9}}}, r"result.ops.0.energy_j.mac is -1e-09"),
        ({"ops": {"colour": "red"}}, r"ops.0.colour is no field of a OpResult"),
        ({"dram_bytes_per_s": "fast"}, "dram_bytes_per_s is 'fast' and no finite number"),
    ],
)
def test_a_figure_that_no_simulation_counts_is_refused_by_its_place(change: dict[str, object], message: str) -> None:
    values = acf.simulate(random_trace(0, 40, 50, 60, (0.5, 0.5)), "tensordash").to_dict()
    first = change.get("ops", {})
    changed = {**values, **change, "ops": [{**values["ops"][0], **first}, *values["ops"][1:]]}  # type: ignore[dict-item]
    with pytest.raises(acf.AcfError, match=f"this is not a saved result .{message}"):
        Result.from_dict(changed)


def test_the_path_of_a_trace_file_is_played_like_the_trace(tmp_path):
    trace = random_trace(0, 16, 16, 16, (0.5, 0.5))
    trace.save(tmp_path / "step.safetensors")
    assert acf.simulate(str(tmp_path / "step.safetensors"), "tensordash") == acf.simulate(trace, "tensordash")


def test_a_list_of_traces_is_answered_with_the_loop_to_write():
    with pytest.raises(
        acf.AcfError, match=r"not a list; for several traces: \[acf.simulate\(trace, architecture\) for"
    ):
        acf.simulate([random_trace(0, 8, 8, 8, (1, 1))], "tensordash")


def test_an_empty_trace_is_refused_with_what_to_call():
    with pytest.raises(acf.AcfError, match=r"has no operations, .*call the model and backward\(\) inside"):
        acf.simulate(acf.Trace.from_matmuls([], label="nothing"), "tensordash")


def test_a_result_of_forward_products_alone_says_that_it_is_inference():
    forward, both = (random_trace(0, 8, 8, 8, (1, 1), phase) for phase in ("forward", "weight_grad"))
    assert "forward products only" in acf.simulate(forward, "tensordash").notes[-1]
    assert not any("forward products only" in note for note in acf.simulate(both, "tensordash").notes)


def test_kind_and_shapes_of_an_operation_and_the_rate_of_dram_are_in_the_result():
    result = acf.simulate(random_trace(0, 8, 16, 4, (1, 1)), "tensordash")
    assert result.ops[0].shape == "linear, 8x16, 16x4"
    assert result.dram_bytes_per_s == acf.sim.spec("tensordash").dram_sustained_bytes_per_s
