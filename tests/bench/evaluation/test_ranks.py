"""Two processes that train together: one topology, one folder of runs that the first of them writes."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from acf.bench.evaluation import bench
from acf.bench.evaluation.bench import ResNet50Options, TransformerOptions
from acf.bench.evaluation.ranks import Ranks, current_ranks, joined
from acf.bench.evaluation.session import EvaluationSession
from acf.bench.evaluation.store import EvaluationStore
from acf.bench.evaluation.training import RunPlan
from acf.errors import FileError, SparsityError
from acf.nn import block_sparse_layers
from tests.train.two_ranks import assert_same, outcomes_of_two_ranks

COMMON: dict[str, Any] = {
    "systems": "rigl",
    "sparsities": (0.5,),
    "block": 16,
    "size": "small",
    "steps": 4,
    "batch": 16,
    "measurements": 1,
    "checkpoint_every": 2,
    "seeds": 1,
    "machines": "none",
    "device": "cpu",
}


class InterruptedError(Exception):
    """Stands for processes that are killed."""


def train_on_two_ranks(rank: int, folder: Path) -> dict[str, Any]:
    """Both benchmarks, the second interrupted after its first checkpoint; masks and weights of the last session."""
    sessions: list[EvaluationSession] = []

    def close(session: EvaluationSession) -> None:
        sessions.append(session)

    EvaluationSession.close = close  # type: ignore[method-assign]
    bench.RunPlan = partial(RunPlan, idle_seconds=0.0)  # type: ignore[misc,assignment]
    images = ResNet50Options(**{**COMMON, "systems": "rigl,masked,2:4"}, captured=2, examples=64, out=folder)
    text = TransformerOptions(**COMMON, captured=0, test_sentences=4, beams=1, out=folder)
    for options in (images, text):
        task = options.task(torch.device("cpu"))
        if options is text:
            with pytest.raises(InterruptedError):
                bench._train_all(options, task, interrupt_at(0.5))
        bench._train_all(options, task, lambda what, share: None)
    session = sessions[-1]
    refused = ""
    try:
        session.ranks.agree("a file", rank)
    except FileError as error:
        refused = str(error)
    return {
        "ranks": [current_ranks().rank, current_ranks().count],
        "masks": {name: layer.mask() for name, layer in block_sparse_layers(session.model).items()},
        "weights": [parameter.detach().clone() for parameter in session.model.parameters()],
        "moves": session.moves,
        "refused": refused,
    }


def interrupt_at(share: float):
    def on_progress(what: str, done: float) -> None:
        if done >= share:
            raise InterruptedError

    return on_progress


def test_two_ranks_keep_one_topology_and_the_first_writes(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    first, second = outcomes_of_two_ranks(train_on_two_ranks, tmp_path)
    assert (first["ranks"], second["ranks"]) == ([0, 2], [1, 2])
    assert_same(first["masks"], second["masks"])
    assert_same(first["weights"], second["weights"])
    assert first["moves"] > 0
    assert "the processes see different files: a file is [0, 1]" in second["refused"]
    rigl = "rigl-50/block=16"
    for name, resumed, systems in (("resnet50", 0, [rigl, "masked-50", "2:4"]), ("transformer", 1, [rigl])):
        with EvaluationStore(tmp_path / name, create=False) as store:
            runs = store.runs()
            assert [run.system for run in runs] == systems
            for run in runs:
                assert (run.processes, run.resumed, run.joules) == (2, resumed, None)
                assert run.metrics
                assert run.losses[-1].step == COMMON["steps"]
            assert len(store.sessions()) == 1 + resumed
            assert not list(store.folder.glob("checkpoint-*"))


def test_a_process_takes_its_share_of_every_batch() -> None:
    assert [Ranks(rank, 2).share(6) for rank in (0, 1)] == [slice(0, 3), slice(3, 6)]
    assert Ranks().share(6) == slice(0, 6)


def test_a_batch_that_does_not_divide_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(SparsityError, match="a batch of 16 does not divide among 3 processes"), joined("cpu", 16):
        pass
