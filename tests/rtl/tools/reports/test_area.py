"""Area in gate equivalents."""

import pytest

from acf.rtl.design.primitives.fifo import BoundedFifo
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.area import measure_area
from tests.rtl.tools.reports.components import LIBERTY, Pair


def test_area_is_in_gate_equivalents_of_the_named_library() -> None:
    report = measure_area(Pair(), "pair", Liberty.read(LIBERTY))
    assert report.cells["DFF"] == 16
    assert report.gate_equivalents >= 16 * 96 / 24
    assert report.gate_equivalents == pytest.approx(2 * report.modules["pair_first"].gate_equivalents)
    assert report.memory_bits == 0


def test_a_memory_of_many_words_is_bits_and_no_gates() -> None:
    small, large = (measure_area(BoundedFifo(8, depth), "fifo", Liberty.read(LIBERTY)) for depth in (8, 256))
    assert (small.memory_bits, large.memory_bits) == (0, 2048)
    assert small.cells["DFF"] > 64 > large.cells["DFF"]
    assert large.gate_equivalents < small.gate_equivalents
