"""Liberty files: cells, areas, pins and their loads."""

import pytest

from acf.errors import RtlError
from acf.rtl.tools.liberty import Liberty
from tests.rtl.tools.reports.components import LIBERTY


def test_a_library_is_read_with_areas_and_loads() -> None:
    library = Liberty.read(LIBERTY)
    assert library.voltage == 1.8
    assert library.gate_area == 24
    assert library.cells["NOR2"].pins["B"].capacitance == 0.013
    assert library.cells["DFF"].pins["Q"].is_output


@pytest.mark.parametrize(
    ("text", "message"), [("hello", "holds no cells"), ("cell (INV) { area : 2; }", "no two-input NAND")]
)
def test_a_file_that_is_no_library_is_refused(text: str, message: str) -> None:
    with pytest.raises(RtlError, match=message):
        assert Liberty.parse(text).gate_area


@pytest.mark.parametrize(("line", "expected"), [("(1, pf)", 1.0), ("(10,ff)", 0.01), ("", 1.0)])
def test_the_unit_of_capacitance_is_the_files(line: str, expected: float) -> None:
    text = LIBERTY.read_text().replace("capacitive_load_unit (1, pf)", f"capacitive_load_unit {line}" if line else "")
    assert Liberty.parse(text).capacitance_pf == pytest.approx(expected)
