"""Synthesis for an FPGA: resources, depth, shares of a part."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from acf.rtl.tools.fpga_parts import FPGA_PARTS
from acf.rtl.tools.reports.synthesis import Resources, SynthesisReport, synthesise
from acf.rtl.tools.reports.tables import synthesis_table
from tests.rtl.tools.reports.components import Accumulator, Pair


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache in which the pair was synthesised, empty before."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def pair(cache: Path) -> SynthesisReport:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACF_CACHE_DIR", str(cache))
        return synthesise(Pair(), "pair")


def test_synthesis_counts_every_instance_of_a_merged_module(pair: SynthesisReport) -> None:
    assert pair.resources.flip_flops == 16
    assert pair.modules["pair_first"].instances == 2
    assert pair.modules["pair_first"].resources.flip_flops == 8
    shown = Console(width=120, file=StringIO())
    shown.print(synthesis_table(pair))
    assert "share of a VU9P" in shown.file.getvalue()


def test_a_module_is_synthesised_once_and_kept(
    pair: SynthesisReport, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACF_CACHE_DIR", str(cache))
    monkeypatch.setattr("acf.rtl.tools.fpga_mapping.run_yosys", None)  # would be called for anything that is not kept
    assert synthesise(Pair(), "pair") == pair


def test_a_design_too_large_for_the_device_is_said_not_to_fit(pair: SynthesisReport) -> None:
    large = replace(pair, resources=Resources(luts=1_182_241))
    for each, verdict in ((pair, "fits a VU9P"), (large, "does not fit a VU9P")):
        shown = Console(width=120, file=StringIO())
        shown.print(synthesis_table(each))
        assert verdict in shown.file.getvalue()
    assert large.to_dict()["fits"] == {"vu9p": False}


def test_the_depth_of_a_large_design_is_that_of_its_deepest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthesise(Accumulator(), "accumulator")
    monkeypatch.setattr("acf.rtl.tools.reports.synthesis.WHOLE_CELLS", sum(whole.cells.values()) - 1)
    parts = synthesise(Accumulator(), "accumulator")
    assert parts.deepest == "accumulator_adder"
    assert parts.logic_depth == parts.modules["accumulator_adder"].logic_depth < whole.logic_depth


def test_a_resource_is_a_share_of_the_device() -> None:
    shares = Resources(luts=11_822.4, dsps=684).share_of(FPGA_PARTS["vu9p"])
    assert shares["luts"] == pytest.approx(0.01)
    assert shares["dsps"] == pytest.approx(0.1)
