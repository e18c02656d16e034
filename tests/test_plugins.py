"""Extensions by entry points and as ``module:name``."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import acf
from acf import plugins
from acf.cost import Figure
from acf.errors import ArchitectureError, PluginError, SparsityError
from acf.masks import POLICIES, SET, build_policy, find_policy
from acf.sim import find_architecture
from acf.sim.catalogue import catalogue

MODULE = """
from dataclasses import dataclass
from pathlib import Path
from acf.cost import Figure
from acf.masks import SET
from acf.sim import spec
from acf.sim.accelerator import AcceleratorSpec, ComputeCount

@dataclass(frozen=True, kw_only=True)
class Own(AcceleratorSpec):
    lanes: int = 64
    clock_hz: float = 500e6
    technology_nm: int = 65
    value_bytes: int = 2
    on_chip_bytes: int = 4 << 20
    dram_kind: str = "ddr"
    dram_pin_bytes_per_s: float = 25.6e9
    dram_sustained_share: float = 0.86

    @property
    def macs_per_cycle(self): return self.lanes

    @property
    def notes(self): return ()

    def count(self, gemm):
        cycles = -(-gemm.dense_macs // self.lanes)
        effectual = gemm.effectual_macs()
        return ComputeCount(cycles, gemm.dense_macs, effectual, {"ineffectual": cycles * self.lanes - effectual})

wide = spec("acf-512", mesh_columns=16)
file = Path(__file__).with_name("narrow.toml")
dram = Figure(1.0, "pJ/bit", "a test")
class OwnPolicy(SET): pass
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, which is not on the path of imports yet."""
    (tmp_path / "outside_machines.py").write_text(MODULE)
    (tmp_path / "broken_machines.py").write_text("raise RuntimeError('half a module')\n")
    (tmp_path / "narrow.toml").write_text('base = "acf-512"\nmesh_columns = 2\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    monkeypatch.delitem(sys.modules, "outside_machines", raising=False)
    return "outside_machines"


@pytest.fixture
def registered(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points as installed distributions would have them, one of them broken."""
    monkeypatch.syspath_prepend(".")
    values = {
        plugins.ARCHITECTURES: {"own": f"{module}:Own", "narrow": f"{module}:file", "broken": "broken_machines:Own"},
        plugins.POLICIES: {"own-policy": f"{module}:OwnPolicy", "number": f"{module}:number"},
        plugins.COSTS: {"own-dram": f"{module}:dram"},
    }
    points = {
        group: tuple(EntryPoint(name, value, group) for name, value in each.items()) for group, each in values.items()
    }
    monkeypatch.setattr(plugins, "_points", lambda group: points[group])


def trace() -> acf.Trace:
    return acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.ones((8, 8)), np.ones((8, 8)))])


def test_a_class_or_a_spec_named_by_its_module_is_simulated(module: str) -> None:
    assert acf.simulate(trace(), f"{module}:Own").architecture == "Own"
    assert find_architecture(f"{module}:wide")[1] == acf.spec("acf-512", mesh_columns=16)


def test_a_file_of_an_own_class_gives_only_what_differs(module: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f'kind = "{module}:Own"\nlanes = 16\n')
    (tmp_path / "based.toml").write_text(f'base = "{module}:Own"\nlanes = 32\n')
    assert [find_architecture(name)[1].macs_per_cycle for name in ("mine.toml", "based.toml")] == [16, 32]


def test_what_is_no_machine_is_refused_by_name(module: str) -> None:
    with pytest.raises(PluginError, match="outside_machines:number gives no machine: it is a int; let it be a Spec"):
        find_architecture(f"{module}:number")
    with pytest.raises(PluginError, match=r"acf.sim.fabric:AdaptiveFabric .* no default for clock_hz"):
        find_architecture("acf.sim.fabric:AdaptiveFabric")
    with pytest.raises(PluginError, match=r"'broken_machines:Own' cannot be imported .RuntimeError: half a module"):
        find_architecture("broken_machines:Own")


@pytest.mark.usefixtures("registered")
def test_an_entry_point_is_a_machine_like_any_other() -> None:
    assert acf.simulate(trace(), "own").architecture == "own"
    assert acf.spec("own", lanes=8).macs_per_cycle == 8
    assert find_architecture("narrow")[1] == acf.spec("acf-512", mesh_columns=2)


@pytest.mark.usefixtures("registered")
def test_a_broken_plug_in_is_named_and_breaks_no_other_name() -> None:
    with pytest.raises(PluginError, match=r"plug-in 'broken' of acf.architectures .broken_machines:Own of"):
        find_architecture("broken")
    rows = {machine.name: machine for machine in catalogue()}
    assert "half a module" in rows["broken"].failure
    assert rows["own"].spec is not None
    assert rows["acf-512"].total_area_mm2


@pytest.mark.usefixtures("registered")
def test_a_plug_in_may_bring_a_dram() -> None:
    assert (
        acf.spec("acf-512", dram_kind="own-dram", memory_model="rate").dram_pj_per_bit
        == Figure(1.0, "pJ/bit", "a test").value
    )
    with pytest.raises(ArchitectureError, match="'no-dram' is not one of ddr, lpddr4, gddr5, hbm2, own-dram"):
        acf.spec("acf-512", dram_kind="no-dram")


@pytest.mark.usefixtures("registered")
def test_a_plug_in_may_bring_a_policy() -> None:
    assert find_policy("set", POLICIES) is SET
    own = build_policy(find_policy("own-policy", POLICIES), total_steps=10, every=2)
    assert isinstance(own, SET)
    assert build_policy(find_policy("static", POLICIES), total_steps=10, every=2).moves_at(2) is False
    with pytest.raises(PluginError, match=r"'number' of acf.policies .* is no policy"):
        find_policy("number", POLICIES)
    with pytest.raises(SparsityError, match="'bst' is not known; use one of block-dst"):
        find_policy("bst", POLICIES)


def test_two_distributions_that_register_one_name_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = tuple(EntryPoint("own", value, plugins.ARCHITECTURES) for value in ("one:Own", "two:Own"))
    monkeypatch.setattr(plugins, "_points", lambda group: twice)
    with pytest.raises(PluginError, match=r"one:Own of .*two:Own of .*registered more than once"):
        plugins.load_plugin(plugins.ARCHITECTURES, "own")


@pytest.mark.parametrize("reference", ["math", ":tau", "math:", "a b:c"])
def test_what_names_no_object_of_a_module_is_refused(reference: str) -> None:
    with pytest.raises(PluginError, match="is not module:name; name a module and what is in it"):
        plugins.import_object(reference)
