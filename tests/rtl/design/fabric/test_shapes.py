"""Fabrics to build, found by name or by file."""

from pathlib import Path

import pytest

import acf.sim
from acf.errors import ArchitectureError, RtlError
from acf.rtl.design.fabric.shapes import SMALL_SHAPE, find_fabric, find_shape
from acf.rtl.design.fabric.sizes import FabricSizes


def test_a_fabric_is_found_by_its_name_and_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "narrow.toml"
    path.write_text('base = "acf-512"\nmesh_columns = 4\n', encoding="utf-8")
    assert find_fabric("acf-512") == acf.sim.spec("acf-512")
    assert find_fabric(str(path)) == acf.sim.spec("acf-512", mesh_columns=4)


def test_without_a_name_the_shape_is_the_small_one() -> None:
    assert find_shape(None) is SMALL_SHAPE


def test_a_machine_that_is_no_fabric_is_refused() -> None:
    with pytest.raises(RtlError, match="tensordash is no fabric; name one of kind fabric"):
        find_fabric("tensordash")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArchitectureError, match="did you mean 'acf-512'"):
        find_fabric("acf-513")


def test_the_lean_fabric_can_be_built_without_stall_counters() -> None:
    sizes = FabricSizes(find_fabric("acf-512-lean"))
    assert sizes.holds_sums
    assert not sizes.counts_stalls
