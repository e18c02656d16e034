"""Ablations: what is trained for them, and what their table says."""

import numpy as np
import pytest

import acf
from acf.bench.evaluation.ablation import INTERCONNECTS, Base, ablation_points, ablation_rows
from acf.bench.evaluation.bench import ResNet50Options
from acf.bench.evaluation.machines import simulate_traces
from acf.bench.evaluation.rows import Spread, evaluation_table
from acf.bench.evaluation.run import SystemRun
from acf.bench.evaluation.store import EvaluationStore
from acf.errors import SparsityError


def test_every_point_is_trained_once() -> None:
    options = ResNet50Options(systems="dense,rigl", sparsities=(0.5, 0.9), ablate="block,regrow,interconnect")
    names = [system.name for system in options.chosen_systems]
    assert len(names) == len(set(names))
    assert set(names) == {
        "dense",
        "rigl-50/block=64",
        *(f"rigl-90/block={side}" for side in (16, 32, 64, 128)),
        *(f"rigl-90/block=64/fraction={fraction}" for fraction in (0.1, 0.5)),
    }
    assert set(INTERCONNECTS) <= set(options.chosen_machines)
    assert "rigl-90/block=16" in options.traced_systems


def test_variants_have_the_settings_of_the_rigl_system() -> None:
    options = ResNet50Options(systems="dense/rate=0.2,rigl/rate=0.8", sparsities=(0.9,), ablate="block")
    names = [system.name for system in options.chosen_systems]
    assert names == ["dense/rate=0.2", *(f"rigl-90/block={side}/rate=0.8" for side in (64, 16, 32, 128))]


def test_an_unknown_ablation_is_refused() -> None:
    with pytest.raises(SparsityError, match="ablation 'mesh' is not one of block, regrow, interconnect"):
        ResNet50Options(ablate="mesh")


def test_interconnects_are_compared_on_the_traces_of_the_trained_run(store: EvaluationStore) -> None:
    points = ablation_points(["interconnect"], Base(0.5, 16))
    system = points[0].system
    store.put_fact("captured_examples", 2.0)
    metrics = {"top-1 %": 50.0}
    store.add_run(SystemRun(system, 0, 1, 1, 1.0, 16.0, 0.0, None, "", 0.0, 0.5, 1, 0, metrics))
    generator = np.random.default_rng(0)
    weight = generator.normal(size=(64, 64)) * np.kron(np.eye(4), np.ones((16, 16)))
    product = acf.Matmul(name="fc", phase="forward", a=generator.normal(size=(64, 64)), b=weight)
    store.trace(system, "end").parent.mkdir()
    acf.Trace.from_matmuls([product]).save(store.trace(system, "end"))
    simulate_traces(store, list(INTERCONNECTS), lambda what, share: None, only={"acf-512-static": "another"})
    assert [step.machine for step in store.machine_steps()] == ["acf-512", "acf-512-crossbar"]
    simulate_traces(store, list(INTERCONNECTS), lambda what, share: None, only={"acf-512-static": system})
    rows = {row.value: row for row in ablation_rows(points, evaluation_table(store, None).rows)}
    assert list(rows) == ["static", "mesh", "crossbar"]
    speeds = {value: row.machine_examples_per_s.mean for value, row in rows.items() if row.machine_examples_per_s}
    assert speeds["crossbar"] > speeds["mesh"]
    assert speeds["crossbar"] > speeds["static"]
    assert rows["mesh"].quality == Spread(50.0, 0.0, 1)
