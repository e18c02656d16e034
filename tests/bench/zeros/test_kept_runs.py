"""Zeros counted in the traced steps of finished runs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acf
from acf.bench.evaluation.run import LossPoint, SystemRun
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.zeros.kept_runs import runs_record, zeros_of_runs
from acf.errors import DataError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EvaluationStore]:
    with EvaluationStore(tmp_path / "runs") as opened:
        opened.put_fact("task", {"name": "resnet50-base"})
        opened.begin_session({"data": "some images", "command": "acf bench resnet50"})
        (opened.folder / "traces").mkdir()
        yield opened


def finish(store: EvaluationStore, system: str, seed: int, zeros: int | None, loss: float = 2.0) -> None:
    """A finished run whose last step was traced with so many of ten activations zero, or not at all."""
    losses = (LossPoint(8, loss),)
    store.add_run(
        SystemRun(system, seed, 8, 8, 1.0, 4.0, 0.0, None, "", 0.0, 0.5, 1, 0, {"top-1 %": 50.0}, losses=losses)
    )
    if zeros is not None:
        activations = np.array([[0.0] * zeros + [1.0] * (10 - zeros)])
        trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", activations, np.ones((10, 4)))])
        trace.save(store.trace(system, "end", seed))


def test_every_traced_system_has_the_mean_over_its_traced_seeds(store: EvaluationStore) -> None:
    for seed, zeros in enumerate([2, 4, None]):
        finish(store, "rigl-90/block=64/rate=0.8", seed, zeros, loss=1.0 + seed)
    finish(store, "dense/rate=0.2", 0, 1)
    sparse, dense = zeros_of_runs(store.folder, "resnet50")
    assert (sparse.sparsity, dense.sparsity) == (0.9, 0.0)
    assert sparse.layers["fc"]["activations"].mean == pytest.approx(0.3)
    assert sparse.layers["fc"]["activations"].deviation == pytest.approx(0.1 * 2**0.5)
    assert sparse.losses == (1.0, 2.0)
    assert dense.whole["activations"].mean == pytest.approx(0.1)
    assert "after 8 steps of dense/rate=0.2" in dense.data
    record = runs_record(store.folder, "resnet50", [sparse, dense])
    assert record["resnet50"]["runs"] == [{"data": "some images", "command": "acf bench resnet50"}]


def test_runs_of_another_network_are_refused(store: EvaluationStore) -> None:
    finish(store, "dense", 0, 1)
    with pytest.raises(DataError, match="are of resnet50-base, not of transformer-base; name the network"):
        zeros_of_runs(store.folder, "transformer-base")


def test_runs_without_a_traced_last_step_are_refused(store: EvaluationStore) -> None:
    finish(store, "dense", 0, None)
    with pytest.raises(DataError, match="keeps no traced last step; train with --captured above 0"):
        zeros_of_runs(store.folder, "resnet50")


@pytest.mark.parametrize("system", ["masked-90/rate=0.8", "2:4", "dts-0.5"])
def test_systems_that_a_record_could_not_tell_from_dense_ones_are_refused(store: EvaluationStore, system: str) -> None:
    finish(store, system, 0, 1)
    with pytest.raises(DataError, match=f"{system} is neither dense nor block-sparse.*remove its traces"):
        zeros_of_runs(store.folder, "resnet50")
