"""Architectures by name, by file and as changed Specs."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import acf.sim
from acf.errors import ArchitectureError
from acf.sim import ARCHITECTURES, architectures, find_architecture, spec, spec_of_kind
from acf.sim.accelerators import TensorDash
from acf.sim.registry import CONFIGS, KINDS, shipped_names


def test_every_shipped_file_is_found_by_name() -> None:
    assert set(shipped_names()) == {path.stem for path in CONFIGS.glob("*.toml")}
    assert shipped_names()[: len(ARCHITECTURES)] == architectures()
    for name in shipped_names():
        assert find_architecture(name) == (name, spec(name))


def test_a_variant_that_is_not_announced_can_be_simulated_by_name() -> None:
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.ones((8, 8)), np.ones((8, 8)))])
    result = acf.simulate(trace, "tensordash-2-deep")
    assert "tensordash-2-deep" not in architectures()
    assert result.architecture == "tensordash-2-deep"


def test_every_kind_of_machine_has_an_announced_architecture() -> None:
    assert set(KINDS.values()) == {type(spec(name)) for name in shipped_names()}


def test_a_changed_spec_is_the_replaced_one() -> None:
    wide = spec("acf-512", mesh_columns=16)
    assert wide == replace(spec("acf-512"), mesh_columns=16)  # type: ignore[call-arg]
    assert wide.macs_per_cycle == 1024


def test_a_spec_can_be_given_a_name_for_its_results() -> None:
    named, unnamed = spec("acf-512", mesh_columns=16, name="wide"), spec("acf-512", mesh_columns=16)
    assert find_architecture(named)[0] == "wide"
    assert find_architecture(unnamed)[0] == "adaptivefabric"
    assert named == unnamed
    assert find_architecture(replace(spec("acf-512"), mesh_columns=8))[0] == "acf-512"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mesh_colums": 16}, "key 'mesh_colums' is not known for AdaptiveFabric; did you mean 'mesh_columns'"),
        ({"mesh_columns": "many"}, "mesh_columns = 'many'"),
        ({"mesh_columns": 0}, "mesh_columns 0 must be at least 1"),
    ],
)
def test_a_wrong_change_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        spec("acf-512", **changes)


def test_a_machine_of_another_kind_is_refused_with_those_that_fit() -> None:
    with pytest.raises(ArchitectureError, match="sat is no tensordash but a sat; use one such as tensordash"):
        spec_of_kind(TensorDash, "sat", depth=2)


def test_every_parameter_of_a_gpu_says_where_it_comes_from() -> None:
    for name in ("gpu-v100", "gpu-h200"):
        lines = (CONFIGS / f"{name}.toml").read_text().splitlines()
        unsourced = [line for line in lines if re.match(r"\w+ =", line) and "#" not in line]
        assert unsourced == ['kind = "gpu"']


def test_an_unknown_architecture_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(acf.AcfError, match="'tensordsh' is not known; did you mean 'tensordash'"):
        find_architecture("tensordsh")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "tensordash"\ndepht = 3\n', "key 'depht' is not known for TensorDash; did you mean 'depth'"),
        ('kind = "warp"\n', "kind 'warp' is not one of tensorcore, tensordash, fabric"),
        ("cores = 4\n", "kind None is not one of"),
        ('base = "tensorcore"\ncores = "many"\n', "cores = 'many'"),
        ('base = "tensorcore"\ncores = 0\n', "cores 0 must be above 0"),
        ('base = "tensordash"\nlanes = 65\n', "lanes 65 exceeds 64"),
        ('base = "tensordash"\nlanes = 2\n', "moves reach 2 lanes aside, the ring has 2 lanes"),
        ('base = "tensordash"\nmoves = [[0, 0], [1, 3], [1, -1]]\n', "name a place of the 4-lane ring twice"),
        ('base = "tensordash"\nsides = 3\n', "sides 3 is not 1 or 2"),
        (
            'base = "tensordash"\nskipped_operand = "weights"\n',
            "skipped_operand 'weights' is not one of sparser, paper",
        ),
        ('base = "tensordash"\nbypass_zeros_share = -0.1\n', "bypass_zeros_share -0.1 must be above 0"),
        ('base = "tensorcore"\ndata_type = "fp8"\n', "data_type 'fp8' is not one of fp16, bf16, fp32"),
        ('base = "tensorcore"\ndata_type = "fp32"\n', "set value_bytes to 4"),
        ('base = "tensordash"\ndepth = 2\n', "moves reach 2 steps ahead"),
        ('base = "tensordash"\nmoves = [[1, 0]]\n', r"moves lack \(0, 0\)"),
        ('base = "tensorcore"\ndram_kind = "tape"\n', "dram_kind 'tape' is not one of"),
        ('base = "acf-512"\ntechnology_nm = 7\n', "published for 65 nm only"),
        ("kind = \n", "is not TOML"),
        ('base = "tensordsh"\n', "base 'tensordsh' is not known; did you mean 'tensordash'"),
        ('base = "machine.toml"\n', "base leads back to this file"),
        ('kind = "sat"\nrows = 4\n', r'columns, .*not given for Sat; give each, or start from .*base = "sat"'),
        ('base = "acf-512"\nvalue_bytes = 4\n', "packets carry bf16 values of 2 bytes; use 2"),
        ('base = "acf-512"\ndram_sustained_share = 1.1\n', "dram_sustained_share 1.1 is above 1"),
    ],
)
def test_a_bad_configuration_is_refused_by_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(text)
    with pytest.raises(acf.AcfError, match=message) as caught:
        find_architecture(path)
    assert "\n" not in str(caught.value)


def test_a_configuration_file_can_change_any_parameter(tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('base = "tensordash"\ncores = 128\nmoves = [[0, 0], [1, 0]]\n')
    name, half = find_architecture(path)
    assert name == "half"
    assert half == replace(spec("tensordash"), cores=128, moves=((0, 0), (1, 0)))


def test_a_missing_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(acf.AcfError, match="cannot be read"):
        find_architecture(tmp_path / "absent.toml")


def test_sizes_beyond_any_machine_and_values_that_are_no_numbers_are_refused() -> None:
    fabric = acf.spec("acf-512")
    assert replace(fabric, clock_hz=2_000_000_000).clock_hz == 2e9
    for change in ({"vector_lanes": 1 << 21}, {"clock_hz": 1e300}, {"on_chip_bytes": 1 << 41}):
        with pytest.raises(ArchitectureError, match="is more than any machine has"):
            replace(fabric, **change)
    with pytest.raises(ArchitectureError, match="mesh_columns True is no number"):
        replace(fabric, mesh_columns=True)
