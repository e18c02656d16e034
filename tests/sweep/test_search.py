"""Points that Optuna proposes."""

from pathlib import Path

import pytest

from acf.errors import SweepError
from acf.sweep import Axes, OptunaSearch, PlayedTraces, RayCluster, Sweep, ThisProcess, run_sweep

AXES = Axes({"mesh_columns": (1, 2, 4), "link_bytes": (16, 32), "tile": (16, 12)})


def test_optuna_evaluates_each_point_once_and_resumes(step: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    path = tmp_path / "sweep.sqlite"
    evaluation = PlayedTraces((step,))
    first = run_sweep(Sweep("s", AXES, evaluation, path, OptunaSearch(4)))
    assert len(first.rows) == 4
    every = run_sweep(Sweep("s", AXES, evaluation, path, OptunaSearch(100)), ThisProcess())
    assert len({str(row.attempt.changes) for row in every.rows}) == len(every.rows) == AXES.size
    assert len(every.failed) == AXES.size // 2
    with pytest.raises(SweepError, match="--optuna 0 is below 1"):
        OptunaSearch(0)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves files and processes to the garbage collector
def test_a_local_ray_evaluates_the_grid(step: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    cluster = RayCluster("local")
    try:
        record = run_sweep(Sweep("s", AXES, PlayedTraces((step.absolute(),)), tmp_path / "sweep.sqlite"), cluster)
    finally:
        cluster.close()
    assert len(record.rows) == AXES.size
    assert len(record.failed) == AXES.size // 2
