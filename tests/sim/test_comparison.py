"""Ratios of one result over another, as they are and at equal size."""

import pytest

from acf.sim import Comparison, OpResult, Result


def result(
    name: str, cycles: int, macs_per_cycle: int, area_mm2: float = 0.0, joules: float = 1.0, nm: int = 65
) -> Result:
    """One operation whose MAC slots are all of use."""
    op = OpResult("fc", "forward", cycles, cycles * macs_per_cycle, cycles * macs_per_cycle, {}, 0, {"compute": joules})
    area = {"logic": area_mm2} if area_mm2 else {}
    return Result(name, "step", 1e9, nm, macs_per_cycle, (op,), area_mm2=area)


def test_a_machine_of_twice_the_peak_and_four_times_the_area_must_be_faster_by_as_much_to_be_level():
    comparison = Comparison(result("large", 100, 2048, area_mm2=40), result("small", 200, 1024, area_mm2=10))
    assert comparison.speedup == 2.0
    assert comparison.equal_peak_speedup == 1.0
    assert comparison.equal_area_speedup == 0.5


@pytest.mark.parametrize(("area", "nm"), [(0.0, 65), (40.0, 45)], ids=["no area known", "another technology node"])
def test_areas_that_cannot_be_compared_give_no_ratio(area: float, nm: int):
    other = result("other", 100, 1024, area_mm2=area, nm=nm)
    assert Comparison(other, result("base", 100, 1024, area_mm2=10)).equal_area_speedup is None


def test_the_energy_delay_product_gains_by_both_factors():
    comparison = Comparison(result("new", 100, 1024, joules=1.0), result("base", 300, 1024, joules=2.0))
    assert comparison.energy_ratio == 2.0
    assert comparison.energy_delay_ratio == 6.0


def test_a_machine_without_energy_figures_has_no_energy_ratio():
    comparison = Comparison(result("new", 100, 1024, joules=0.0), result("base", 100, 1024))
    assert comparison.energy_ratio is None
    assert comparison.energy_delay_ratio is None


def test_a_result_is_one_line_in_a_console():
    assert repr(result("small", 200, 1024)) == "Result('small', 'step', 1 operations, 200 ns, U 100.0%, 1 J)"


def test_an_operation_says_its_own_utilization():
    op = OpResult("fc", "forward", 10, 1000, 250, {"memory": 750}, 0, {})
    assert op.utilization == 0.25
