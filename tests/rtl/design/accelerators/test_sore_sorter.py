"""The sorter of a SORE lane against the simulator's."""

import numpy as np
import pytest

from acf.rtl.design.accelerators.sore_sorter import SorterSpec, TopKSorter
from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.tools.port_arrays import split_bits
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
