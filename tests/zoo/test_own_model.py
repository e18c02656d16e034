"""A step of the user's own model as a trace."""

import sys
from pathlib import Path

import pytest

from acf.cli import main
from acf.errors import DataError
from acf.trace import Trace
from acf.zoo.own_model import capture_own

MODULE = """
import torch
from torch import nn

def labelled():
    torch.manual_seed(0)
    return nn.Linear(8, 4), torch.randn(2, 8), torch.tensor([0, 1])

def with_loss():
    torch.manual_seed(0)
    x = torch.randn(2, 8)
    return nn.Linear(8, 4), lambda model: model(x).square().mean()

def only_a_model():
    return nn.Linear(8, 4)

def no_scalar():
    x = torch.randn(2, 8)
    return nn.Linear(8, 4), lambda model: model(x)

def a_number_for_a_loss():
    return nn.Linear(8, 4), 1
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_model_of_a_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    monkeypatch.delitem(sys.modules, "own_model_of_a_test", raising=False)


@pytest.mark.parametrize("function", ["labelled", "with_loss"])
def test_a_function_that_builds_model_and_batch_is_captured(function: str) -> None:
    step = capture_own(f"own_model_of_a_test:{function}")
    assert [op.phase for op in step.trace.ops] == ["forward", "weight_grad"]
    assert step.loss > 0


def test_other_functions_are_refused_with_what_is_expected() -> None:
    with pytest.raises(DataError, match=r"returned a Linear; return \(model, inputs, labels\)"):
        capture_own("own_model_of_a_test:only_a_model")
    with pytest.raises(DataError, match="'math:tau' is no function; name one that returns"):
        capture_own("math:tau")
    with pytest.raises(DataError, match="returned a int beside the model; return"):
        capture_own("own_model_of_a_test:a_number_for_a_loss")
    with pytest.raises(DataError, match="the loss is no scalar"):
        capture_own("own_model_of_a_test:no_scalar")


def test_the_command_writes_the_trace_and_refuses_to_train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["acf", "capture", "own_model_of_a_test:labelled", "-o", "own.safetensors"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match="0"):
        main()
    assert len(Trace.load("own.safetensors").ops) == 2
    monkeypatch.setattr(sys, "argv", [*command, "--steps", "3"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "steps 3: own_model_of_a_test:labelled is captured as its function returns it" in capsys.readouterr().err
