"""Simulation in batches of cycles that keep their state, on each backend."""

import warnings

import pytest

from acf.errors import RtlError
from acf.rtl.tools import simulation
from acf.rtl.tools.simulation import Simulation, SlowSimulationWarning
from acf.rtl.tools.verilator import VerilatorUnavailableError
from tests.rtl.tools.counters import Counter, Counters


def test_a_merged_component_computes_what_an_unmerged_one_does(simulate) -> None:
    outputs = simulate(Counters()).run({"by": [1, 2, 3, 4, 5, 6]})
    counts, third, expected = 0, 0, []
    for by in (1, 2, 3, 4, 5, 6):
        expected.append(third ^ counts)
        counts, third = (counts + by) % 256, third
    assert outputs["count"].tolist() == expected


def test_state_is_kept_from_one_batch_to_the_next(simulate) -> None:
    running = simulate(Counter())
    assert running.run({"by": 3}, cycles=2)["count"].tolist() == [0, 3]
    assert running.run({"by": [1, 1]})["count"].tolist() == [6, 7]


def test_ports_wider_than_64_bits_are_words_least_first(simulate) -> None:
    outputs = simulate(Counter()).run({"by": 1}, cycles=3)
    assert outputs["wide"].tolist() == [[0, 0], [0, 1 << 6], [0, 2 << 6]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"bye": [1]}, "'bye' is no input of this component; its inputs are by"),
        ({"by": [256]}, "port by has 8 bits and is given a value that needs more"),
        ({"by": [0.5]}, "port by is given float64 values; give integers"),
        ({"by": [[1, 2], [3, 4]]}, r"port by is given values of shape \[2, 2\] in 2 cycles; give one for all cycles"),
        ({"by": [[[1]]]}, r"values of shape \[1, 1, 1\] in 1 cycles"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message: str) -> None:
    with pytest.raises(RtlError, match=message):
        Simulation(Counter(), backend="pysim").run(inputs)


def test_inputs_for_another_number_of_cycles_are_refused() -> None:
    running = Simulation(Counter(), backend="pysim")
    with pytest.raises(RtlError, match=r"port by is given values of shape \[3\] in 2 cycles; give one for all cycles"):
        running.run({"by": [1, 2, 3]}, cycles=2)
    assert running.run({"by": [1]}, cycles=2)["count"].tolist() == [0, 1]


@pytest.mark.parametrize("cycles", [-1, 1.5, "2", True])
def test_cycles_that_are_no_count_are_refused(cycles: object) -> None:
    with pytest.raises(RtlError, match=r"is no count; pass an integer, or None"):
        Simulation(Counter(), backend="pysim").run({"by": 1}, cycles=cycles)


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    counter = Counter()
    with pytest.raises(RtlError, match="'icarus' is not one of auto, verilator, pysim"):
        Simulation(counter, backend="icarus")
    Simulation(counter, backend="pysim")


def test_without_verilator_amaranth_simulates_after_one_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*arguments: object, **options: object) -> None:
        raise VerilatorUnavailableError("no Verilator in this test")

    monkeypatch.setattr(simulation, "load_model", unavailable)
    with pytest.warns(SlowSimulationWarning, match="no Verilator in this test"):
        running = Simulation(Counter())
    assert running.backend == "pysim"
    assert running.run({"by": [1, 1]})["count"].tolist() == [0, 1]
    with warnings.catch_warnings(action="error"):
        Simulation(Counter())
