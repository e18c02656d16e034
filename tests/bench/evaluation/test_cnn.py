"""SparTANN's CNNs with sparse gradients, from options to densities and loss curves."""

from pathlib import Path

import pytest
import torch

from acf.bench.evaluation.bench import CnnOptions, run_evaluation
from acf.bench.evaluation.cnn import load_cnn
from acf.bench.evaluation.density import gradient_densities
from acf.bench.evaluation.session import EvaluationSession
from acf.errors import SparsityError
from acf.gradients import sparsifier_of

COMMON = {"steps": 4, "batch": 16, "captured": 16, "measurements": 1, "checkpoint_every": 2, "device": "cpu"}
CONVOLUTIONS = ["features.0", "features.3", "features.6"]


def test_a_run_gives_densities_by_layer_and_loss_curves(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    options = CnnOptions(
        **COMMON, systems="dense,dts-0.5", machines="none", seeds=1, examples=64, out=tmp_path, name="digits"
    )
    table = run_evaluation(options, lambda what, share: None)
    assert [row.layer for row in table.densities] == [*CONVOLUTIONS, "classifier.1", "classifier.2"]
    assert all(0.0 < density <= 1.0 for row in table.densities for density in row.densities.values() if density)
    page = (tmp_path / "digits" / "evaluation.md").read_text()
    assert "| features.3 |" in page
    assert "![training loss by step](losses.svg)" in page
    assert (tmp_path / "digits" / "losses.svg").read_text().count("<polyline") == 2


def test_gradients_become_sparse_at_convolutions_alone() -> None:
    pytest.importorskip("sklearn")
    options = CnnOptions(**COMMON, systems="topk-0.9", traced="topk-0.9")
    task = load_cnn("digits", None, 16, 64, torch.device("cpu"))
    [system] = options.chosen_systems
    session = EvaluationSession(task, system, 0, 4)
    sparse = [name for name, layer in session.model.named_modules() if sparsifier_of(layer) is not None]
    assert sparse == CONVOLUTIONS
    densities = gradient_densities(session.capture(16, "a step"))
    assert densities["features.3"] <= 0.11, "the third convolution passes a tenth of its input gradient back"
    assert densities["classifier.2"] == 1.0


def test_a_traced_step_of_another_size_is_refused() -> None:
    with pytest.raises(SparsityError, match=r"a traced step of 4 examples .* pass --captured 16"):
        CnnOptions(**{**COMMON, "captured": 4})
