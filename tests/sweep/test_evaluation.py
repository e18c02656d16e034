"""Points: traces on variants of a machine, and functions of the user's own."""

import sys
from dataclasses import fields
from pathlib import Path

import pytest

import acf
from acf.errors import ArchitectureError, SweepError
from acf.lowering import FabricShape
from acf.sweep import Axes, OwnFunction, PlayedTraces
from acf.sweep.evaluation import attempt

OTHER_VALUES = {
    "mesh_rows": 4,
    "mesh_columns": 4,
    "scus_per_cluster": 4,
    "lanes": 2,
    "tile": 8,
    "queue_packets": 2,
    "parallel_slots": 16,
    "accumulator_tiles": 4,
    "store_ports": 2,
    "sum_adders": 8,
    "prefetch_packets": 2,
    "link_bytes": 16,
    "hop_cycles": 4,
    "sram_cycles": 9,
    "skip": "serial",
    "tile_format": "csc",
    "interconnect": "static",
    "balancer": "round-robin",
    "accumulate_in": "registers",
    "held_rows": 2,
    "stall_counters": "none",
}
NEEDS: dict[str, dict[str, str | int]] = {
    "held_rows": {"accumulate_in": "registers"},
}
"""Fields that another one must allow."""


def test_shared_work_changes_no_figure_whatever_field_differs(step: Path) -> None:
    assert set(OTHER_VALUES) == {item.name for item in fields(FabricShape)}
    evaluation, trace = PlayedTraces((step,)), acf.Trace.load(step)
    for name, value in ({"clock_hz": 100e6} | OTHER_VALUES).items():
        changes = {name: value} | NEEDS.get(name, {})
        figures = evaluation(changes)
        alone = acf.simulate(trace, acf.spec("acf-512", **changes))
        assert figures["step_seconds"] == alone.step_seconds, name
        assert figures["energy_j"] == alone.energy_j, name
        assert figures["area_mm2"] == alone.total_area_mm2, name


def test_times_and_energies_of_several_traces_add_up(step: Path) -> None:
    one, two = (PlayedTraces((step,) * count, "tensordash-512")({}) for count in (1, 2))
    assert two["step_seconds"] == pytest.approx(2 * (one["step_seconds"] or 0))
    assert two["area_mm2"] == one["area_mm2"]


def test_unknown_fields_and_wrong_types_are_refused_before_anything_runs(step: Path) -> None:
    evaluation = PlayedTraces((step,))
    with pytest.raises(ArchitectureError, match="'mesh_colums' is not known for AdaptiveFabric; did you mean"):
        evaluation.check(Axes({"mesh_colums": (4,)}))
    with pytest.raises(SweepError, match="acf-512: mesh_columns = 'many': Input should be a valid integer"):
        evaluation.check(Axes({"mesh_columns": (4, "many")}))
    with pytest.raises(SweepError, match="name cannot be swept"):
        evaluation.check(Axes({"name": ("one", "two")}))


def test_a_variant_that_cannot_be_built_is_a_failed_point_with_its_reason(step: Path) -> None:
    failed = attempt(PlayedTraces((step,)), {"tile": 12})
    assert failed.figures is None
    assert failed.failure == "acf-512: tile 12 is not one of 8, 16, 32; use one of these"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnFunction:
    """A function in the current folder that plays at training."""
    (tmp_path / "own_points_of_a_test.py").write_text(
        "def evaluate(block, sparsity):\n"
        "    if block == 3: raise RuntimeError('no such block')\n"
        "    return {'accuracy': 1 - sparsity / block, 'seconds': 1 - sparsity, 'nothing': None}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    monkeypatch.delitem(sys.modules, "own_points_of_a_test", raising=False)
    return OwnFunction("own_points_of_a_test:evaluate", minimise=("seconds",), maximise=("accuracy",))


def test_a_function_of_ones_own_gives_the_figures(own: OwnFunction) -> None:
    assert own({"block": 2, "sparsity": 0.5}) == {"accuracy": 0.75, "seconds": 0.5, "nothing": None}
    assert attempt(own, {"block": 3, "sparsity": 0.5}).failure == "RuntimeError: no such block"
    with pytest.raises(SweepError, match="missing a required argument: 'sparsity'; set exactly its parameters"):
        own.check(Axes({"block": (2,)}))


def test_a_function_without_its_objective_fails(own: OwnFunction) -> None:
    other = OwnFunction(own.function, minimise=("energy_j",))
    assert "returned no energy_j" in attempt(other, {"block": 2, "sparsity": 0.5}).failure
    with pytest.raises(SweepError, match="has no objective"):
        OwnFunction(own.function)
