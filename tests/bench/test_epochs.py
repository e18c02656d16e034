"""Training over epochs: what is captured when, and what is kept."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from acf.bench.epochs.figures import play_traces
from acf.bench.epochs.training import EpochSpec, captured_epochs, keep_traces
from acf.cli import app
from acf.errors import DataError
from acf.trace import Trace
from acf.zoo.data import LabelledData

RUNNER = CliRunner()


def stripes() -> LabelledData:
    """Images of 32 x 32 whose class is the number of their bright row."""
    labels = torch.arange(96) % 10
    images = torch.zeros(96, 3, 32, 32, dtype=torch.uint8)
    images[torch.arange(96), :, 3 * labels] = 255
    return LabelledData("stripes", images, labels)


def small(**changes: object) -> EpochSpec:
    options = {"network": "vgg8", "epochs": 3, "every": 2, "batch": 16, "captured": 2, "held_out": 16, "examples": 32}
    return EpochSpec(**(options | {"learning_rate": 0.005} | changes))


def quiet(what: str, share: float) -> None:
    """No progress bar."""


def test_steps_are_captured_before_training_on_the_way_and_at_the_end() -> None:
    captured = list(captured_epochs(small(), stripes()))
    assert [each.epoch for each in captured] == [0, 2, 3]
    assert captured[1].trace.label == "vgg8: 2 examples of 32 x 32 after 2 of 3 epochs; stripes"
    assert {each.trace.tensors["features.0.activation"].shape for each in captured} == {(2, 3, 32, 32)}
    assert captured[0].trace.tensors["features.0.activation"].nonzeros > 0
    assert all(0 <= each.accuracy <= 1 for each in captured)


def test_the_same_seed_trains_the_same_network() -> None:
    losses = [[each.loss for each in captured_epochs(small(seed=seed), stripes())] for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_normalisation_is_a_network_of_its_own() -> None:
    spec = small(network="vgg16-bn", epochs=1, batch=4, examples=4)
    (before, _) = captured_epochs(spec, stripes())
    assert sum(op.phase == "forward" for op in before.trace.ops) == 13 + 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "vgg61"}, "network 'vgg61' is not known; did you mean 'vgg16'"),
        ({"epochs": 0}, "epochs 0 is below 1"),
        ({"captured": 1}, "captured 1 is below 2"),
        ({"learning_rate": 0.0}, "learning rate 0.0 is not above 0"),
        ({"device": "tpu"}, "device 'tpu' is not one of cpu, cuda"),
    ],
)
def test_a_bad_run_is_refused_by_what_is_wrong(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        small(**changes)


def test_too_little_data_is_refused() -> None:
    with pytest.raises(DataError, match="do not give 90 to score and 6 to train on in batches of 16"):
        next(captured_epochs(small(held_out=90, examples=0), stripes()))
    pairs = LabelledData("pairs", torch.zeros(96, 2), torch.zeros(96))
    with pytest.raises(DataError, match="pairs has no images"):
        next(captured_epochs(small(), pairs))


def test_a_run_is_kept_and_played_with_its_plot(tmp_path: Path) -> None:
    keep_traces(captured_epochs(small(epochs=1), stripes()), tmp_path, quiet, 1)
    points = play_traces(tmp_path, quiet)
    assert [point.epoch for point in points] == [0, 1]
    assert json.loads((tmp_path / "epochs.json").read_text())["data"] == [asdict(point) for point in points]
    assert "times as fast as dense" in (tmp_path / "epochs.html").read_text()
    assert all(point.figures.tensordash["compute"] > 1 for point in points)


def test_the_command_plays_what_was_captured_elsewhere(tmp_path: Path) -> None:
    keep_traces(captured_epochs(small(epochs=1), stripes()), tmp_path, quiet, 1)
    done = RUNNER.invoke(app, ["epochs", "--stage", "play", "--folder", str(tmp_path), "--json"])
    assert [point["epoch"] for point in json.loads(done.output)["data"]] == [0, 1]


TRAIN_ALONE = """
import sys
sys.modules.update(dict.fromkeys(("pydantic", "numba", "plotly", "jinja2", "typer", "rich")))
from pathlib import Path
import torch
from acf.bench.epochs.training import EpochSpec, captured_epochs, keep_traces
from acf.zoo.data import LabelledData
data = LabelledData("noise", torch.randint(0, 255, (24, 3, 32, 32), dtype=torch.uint8), torch.arange(24) % 10)
spec = EpochSpec("vgg8", epochs=1, batch=8, captured=2, held_out=8)
keep_traces(captured_epochs(spec, data), Path(sys.argv[1]), lambda *_: None, 1)
"""


def test_training_needs_no_part_of_the_simulator(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TRAIN_ALONE, str(tmp_path)], check=True)
    assert [each["epoch"] for each in json.loads((tmp_path / "training.json").read_text())] == [0, 1]
    assert len(Trace.load(tmp_path / "epoch-001.safetensors").ops) == 3 * 8 - 1


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train into this folder first"):
        play_traces(tmp_path, quiet)


def test_the_command_refuses_a_stage_that_it_does_not_have() -> None:
    done = RUNNER.invoke(app, ["epochs", "--stage", "half"])
    assert done.exit_code != 0
    assert "stage 'half' is not one of both, train, play" in str(done.exception)
