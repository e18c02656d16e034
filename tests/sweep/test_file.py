"""Sweeps as TOML files."""

from pathlib import Path

import pytest

from acf.errors import SweepError
from acf.sweep import OwnFunction, PlayedTraces
from acf.sweep.file import read_sweep_file


def test_a_file_names_its_traces_relative_to_itself(step: Path, tmp_path: Path) -> None:
    path = tmp_path / "sizes.toml"
    (tmp_path / "step.safetensors").write_bytes(step.read_bytes())
    path.write_text('traces = ["step.safetensors"]\nbase = "acf-1"\noptuna = 7\n[set]\nlink_bytes = [16, 32]\n')
    file = read_sweep_file(path)
    assert file.evaluation == PlayedTraces((tmp_path / "step.safetensors",), "acf-1")
    assert file.axes.values == {"link_bytes": (16, 32)}
    assert (file.label, file.optuna) == ("sizes", 7)


def test_a_file_may_name_a_function_and_its_objectives(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('evaluate = "math:hypot"\nmaximise = ["accuracy"]\n[set]\nblock = [16, 32]\n')
    evaluation = read_sweep_file(path).evaluation
    assert isinstance(evaluation, OwnFunction)
    assert [(each.name, each.maximise) for each in evaluation.objectives] == [("accuracy", True)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bases = 'acf-512'\n[set]\ntile = [8]\n", "bases: .*known keys: set, name, traces, base"),
        ("optuna = 'many'\n[set]\ntile = [8]\n", "optuna: Input should be a valid integer"),
        ("set = [", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_key(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(SweepError, match=message):
        read_sweep_file(tmp_path / "sweep.toml")
