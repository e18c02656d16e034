"""Sorter, threshold unit, prefix sums and queues: units that a stream passes through."""

import numpy as np
import pytest
import torch

from acf.gradients.rules import DynamicThresholdScaling
from acf.rtl.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.flow.ports import join_bits, split_bits
from acf.rtl.units.fifo import BoundedFifo, CreditCounter, FifoModel
from acf.rtl.units.prefix_sum import PrefixSum, prefix_sums
from acf.rtl.units.sorter import SorterSpec, TopKSorter
from acf.rtl.units.threshold import ThresholdModel, ThresholdSpec, ThresholdUnit, next_threshold
from acf.sim.accelerators.sore import reduce_groups


def test_a_lane_keeps_what_the_simulators_sorter_keeps(simulate) -> None:
    check_sorter(simulate, SorterSpec(2, 8))


@pytest.mark.parametrize("spec", [SorterSpec(1, 4), SorterSpec(4, 4), SorterSpec(3, 5)], ids=["1:4", "4:4", "3:5"])
def test_lanes_of_other_patterns_keep_the_same(interpret, spec: SorterSpec) -> None:
    check_sorter(interpret, spec)


def check_sorter(simulate, spec: SorterSpec) -> None:
    generator = np.random.default_rng(0)
    values = bf16_bits(generator.standard_normal(12 * spec.group_size).round(1))  # rounded: equal magnitudes meet
    expected = reduce_groups(bf16_values(values).astype(float), spec.kept, spec.group_size, lanes=1)
    places = np.sort(generator.choice(2 * values.size, values.size, replace=False))  # with gaps
    value, valid = np.zeros((2, 2 * values.size + 1), dtype=np.int64)
    value[places], valid[places] = values, 1
    outputs = simulate(TopKSorter(spec)).run({"value": value, "valid": valid})
    done = np.flatnonzero(outputs["done"])
    kept = split_bits(outputs["values"][done], spec.value_bits, spec.kept)
    np.testing.assert_array_equal(bf16_values(kept), expected.values)
    np.testing.assert_array_equal(split_bits(outputs["indices"][done], spec.index_bits, spec.kept), expected.indices)


def test_a_lane_takes_a_group_every_group_size_cycles(simulate) -> None:
    spec = SorterSpec(2, 8)
    outputs = simulate(TopKSorter(spec)).run({"value": np.arange(33) + 0x3F80, "valid": np.arange(33) < 32})
    assert np.flatnonzero(outputs["done"]).tolist() == [8, 16, 24, 32]
    assert reduce_groups(np.zeros(32), 2, 8, lanes=1).cycles == 32


def test_the_threshold_unit_equals_its_model_in_every_cycle(simulate) -> None:
    spec, generator = ThresholdSpec(count_bits=8), np.random.default_rng(1)
    update = spec.update_cycles + 2
    element, valid, finish = [], [], []
    for _ in range(6):
        gradient = (generator.standard_normal(50) * 1e-3).astype(np.float32)
        gradient[generator.random(50) < 0.2] = 0.0
        element += [*gradient.view(np.uint32).tolist(), *[7] * update]
        valid += [*(generator.random(50) < 0.9).astype(int).tolist(), *[0] * update]
        finish += [0] * 50 + [1] + [0] * (update - 1)
    target = round(0.6 * 2**16)
    outputs = simulate(ThresholdUnit(spec)).run(
        {"element": element, "valid": valid, "finish": finish, "target": target}
    )
    model = ThresholdModel(spec)
    for cycle in range(len(element)):
        expected = model.step(element[cycle], valid[cycle], finish[cycle], target)
        assert {name: int(outputs[name][cycle]) for name in expected} == expected, f"cycle {cycle}"
    assert model.threshold > 0


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-37])
def test_the_threshold_follows_the_rule_that_training_uses(scale: float) -> None:
    rule, generator = DynamicThresholdScaling(target=0.5), torch.Generator().manual_seed(0)
    threshold, bits = torch.zeros(()), 0
    for step in range(1, 12):
        gradient = torch.randn(4_000, generator=generator) * scale
        zeros = int((gradient.abs() < threshold).sum())
        greatest = int(gradient.abs().amax().numpy().view(np.uint32))
        after = rule.next_threshold(gradient, threshold, torch.tensor(zeros / 4_000), torch.tensor(step))
        bits = next_threshold(int(threshold.numpy().view(np.uint32)), zeros, 4_000, greatest, 1 << 15)
        assert float(np.uint32(bits).view(np.float32)) == pytest.approx(float(after), rel=2**-22)
        threshold = after


@pytest.mark.parametrize(
    ("threshold", "zeros", "greatest", "expected"),
    [
        (0, 3, 0, 0),  # nothing but zeros so far: no threshold yet
        (0x00800000, 10, 0, 0x00800000),  # not below the least normal number
        (0x7F7FFFFF, 0, 0, 0x7F800000),  # beyond the greatest
        (0, 0, 0x7F800000, 0x7F800000),  # an overflow of the loss scale stays visible
    ],
)
def test_thresholds_at_the_ends_of_the_range(threshold: int, zeros: int, greatest: int, expected: int) -> None:
    assert next_threshold(threshold, zeros, 10, greatest, 1 << 15) == expected


def test_prefix_sums_of_counts_are_row_offsets(simulate) -> None:
    check_prefix_sums(simulate, lanes=8)


@pytest.mark.parametrize("lanes", [1, 5])
def test_prefix_sums_need_no_power_of_two(interpret, lanes: int) -> None:
    check_prefix_sums(interpret, lanes)


def check_prefix_sums(simulate, lanes: int) -> None:
    counts = np.random.default_rng(2).integers(0, 256, (20, lanes))
    idle = np.zeros((1, lanes), dtype=np.int64)
    outputs = simulate(PrefixSum(lanes=lanes)).run(
        {
            "counts": join_bits(np.concatenate((counts, idle)), 8),
            "valid": [1] * 20 + [0],
            "clear": [1, *[0] * 20],
        }
    )
    expected = prefix_sums(counts.reshape(-1))
    np.testing.assert_array_equal(split_bits(outputs["offsets"][1:], 24, lanes).reshape(-1), expected[:-1])
    assert outputs["total"][-1] == expected[-1]
    assert outputs["offsets_valid"].tolist() == [0] + [1] * 20


def test_the_queue_equals_its_model_in_every_cycle(simulate) -> None:
    check_queue(simulate, depth=4)


@pytest.mark.parametrize("depth", [1, 3])
def test_queues_of_any_depth_equal_the_model(interpret, depth: int) -> None:
    check_queue(interpret, depth)


def check_queue(simulate, depth: int) -> None:
    generator, cycles = np.random.default_rng(depth), 120
    write, read = generator.random((2, cycles)) < 0.6
    data = generator.integers(0, 1 << 32, cycles)
    outputs = simulate(BoundedFifo(32, depth)).run({"write_valid": write, "write_data": data, "read_ready": read})
    model = FifoModel(depth)
    for cycle in range(cycles):
        expected = model.step(int(write[cycle]), int(data[cycle]), int(read[cycle]))
        assert {name: int(outputs[name][cycle]) for name in expected} == expected, f"cycle {cycle}"


def test_a_sender_without_credits_waits_for_one(interpret) -> None:
    outputs = interpret(CreditCounter(2)).run({"send": 1, "credit": [0, 0, 0, 1, 0, 0]})
    assert outputs["available"].tolist() == [1, 1, 0, 0, 1, 0]
