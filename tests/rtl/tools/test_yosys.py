"""Yosys in its own process: what it refuses, and a run without an end, are told in one line."""

import pytest

from acf.errors import RtlError
from acf.rtl.tools.yosys import run_yosys

pytest.importorskip("pyosys")


def test_a_design_that_yosys_refuses_is_named_with_its_reason() -> None:
    with pytest.raises(RtlError, match=r"yosys refused the design: .*absent.*; check the input") as refused:
        run_yosys(["read_verilog absent.v"], {})
    assert len(str(refused.value).splitlines()) == 1


def test_a_run_that_does_not_end_is_stopped_and_named() -> None:
    with pytest.raises(RtlError, match=r"yosys has not ended after 0\.01 s; take a smaller design"):
        run_yosys(["hierarchy"], {}, timeout_s=0.01)


def test_names_of_any_script_come_through() -> None:
    assert "Straße" in run_yosys(["log Straße"], {}).log
