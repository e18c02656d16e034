"""The command line: what a person or a program gets, and one clear line on bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import acf
from acf.cli import app, main

RUNNER = CliRunner()


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    matmul = acf.Matmul("fc", "forward", rng.random((64, 64)) < 0.5, rng.random((64, 64)) < 0.3)
    path = tmp_path / "step.safetensors"
    acf.Trace.from_matmuls([matmul], label="half").save(path)
    return path


def run_main(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and stderr of the installed command."""
    monkeypatch.setattr(sys, "argv", ["acf", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0), capsys.readouterr().err


def test_help_names_every_command() -> None:
    text = RUNNER.invoke(app, ["--help"]).output
    for command in ("demo", "capture", "traces", "epochs", "simulate", "compare", "report", "doctor"):
        assert command in text


def test_the_command_is_installed_and_says_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "acf", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == acf.__version__


def test_simulate_prints_json_that_programs_can_read(trace_path: Path) -> None:
    done = RUNNER.invoke(app, ["simulate", str(trace_path), "--on", "tensordash", "--json"])
    (values,) = json.loads(done.output)["data"]
    assert values["cycles"] == acf.simulate(acf.Trace.load(trace_path), "tensordash").cycles


def test_a_name_that_is_no_text_is_printed_with_escapes(trace_path: Path, tmp_path: Path) -> None:
    record, page = tmp_path / "result.json", tmp_path / "\udcff.html"
    assert RUNNER.invoke(app, ["simulate", str(trace_path), "--on", "tensordash", "--out", str(record)]).exit_code == 0
    done = RUNNER.invoke(app, ["report", str(record), "--out", str(page)])
    assert done.exception is None
    assert "\\udcff.html" in done.output
    assert page.exists()


def test_simulate_prints_a_table_for_people(trace_path: Path) -> None:
    text = RUNNER.invoke(app, ["simulate", str(trace_path), "--on", "acf-512"]).output
    assert "half on acf-512" in text
    assert "whole step" in text


def test_compare_shows_every_architecture_against_the_baseline(trace_path: Path) -> None:
    done = RUNNER.invoke(app, ["compare", str(trace_path), "--json"])
    values = json.loads(done.output)["data"]
    assert [value["architecture"] for value in values] == list(acf.architectures())
    assert values[0]["speedup"] == 1.0
    table = RUNNER.invoke(app, ["compare", str(trace_path), "--on", "tensordash"], env={"COLUMNS": "160"}).output
    assert "tensordash" in table
    assert "acf-512" not in table


def test_saved_results_become_a_report(trace_path: Path, tmp_path: Path) -> None:
    saved, page = tmp_path / "out" / "results.json", tmp_path / "report.html"
    assert RUNNER.invoke(app, ["compare", str(trace_path), "--save", str(saved)]).exit_code == 0
    assert RUNNER.invoke(app, ["report", str(saved), "-o", str(page)]).exit_code == 0
    assert "acf-512" in page.read_text()


def test_doctor_names_every_part_and_what_follows() -> None:
    findings = json.loads(RUNNER.invoke(app, ["doctor", "--json"]).output)["data"]
    parts = [finding["part"] for finding in findings]
    for part in ("torch", "CPU", "C++ compiler", "GPU", "Triton", "2:4 products", "Verilator", "memory"):
        assert part in parts
    assert all(finding["found"] and finding["consequence"] for finding in findings)
    assert "acf doctor" in RUNNER.invoke(app, ["doctor"]).output


def test_everything_that_demo_simulate_and_compare_print_becomes_a_report(trace_path: Path, tmp_path: Path) -> None:
    files = []
    for command in ("simulate", "compare"):
        printed = RUNNER.invoke(app, [command, str(trace_path), "--on", "acf-512", "--json"]).stdout
        files.append(tmp_path / f"{command}.json")
        files[-1].write_text(printed)
    run = {"label": "run", "test_accuracy": 0.9, "weight_sparsity": 0.5, "losses": [1.0, 0.5], "seconds": 1.0}
    demo = {"records": [run | {"test_accuracies": [[2, 0.9]], "moved_blocks": []}], "results": [], "report": "x"}
    files.append(tmp_path / "demo.json")
    files[-1].write_text(json.dumps(demo))
    done = RUNNER.invoke(app, ["report", *map(str, files), "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert 'id="summary"' in page
    assert 'id="training"' in page


def test_other_json_is_refused_by_its_name_and_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "package.json"
    path.write_text('{"name": "x", "version": "1", "private": true}')
    code, errors = run_main(["report", str(path)], monkeypatch, capsys)
    assert code == 2
    assert "package.json holds the keys name, version, private, which is no record of acf" in errors


BUILDERS = """
import torch
def raises(): return 1 / 0
def alone(): return torch.nn.Linear(64, 64)
def wrong_input(): return torch.nn.Linear(64, 64), torch.randn(4, 3)
def wrong_pair(): return 1, 2
class Broken(torch.nn.Module):
    def forward(self, x): raise KeyError("state")
def broken(): return Broken(), torch.randn(2, 2)
"""


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        ("raises", "failed (ZeroDivisionError: division by zero); it is called without arguments"),
        ("alone", "returned a Linear; return (model, example input), a pair"),
        ("wrong_input", "cannot be called with its example (RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("broken", "cannot be called with its example (KeyError: 'state'); return an input that it takes"),
        ("wrong_pair", "returned a tuple; return (model, example input), a pair"),
    ],
)
def test_a_model_that_cannot_be_timed_is_one_line_and_no_trace_back(
    builder: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my_builders.py").write_text(BUILDERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "my_builders", raising=False)
    code, errors = run_main(["doctor", "--layers", f"my_builders:{builder}"], monkeypatch, capsys)
    assert code == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "absent.safetensors"], "absent.safetensors is not a file"),
        (["simulate", "TRACE", "--on", "tensordsh"], "did you mean 'tensordash'"),
        (["simulate", "TRACE", "--on", "absent.toml"], "absent.toml cannot be read"),
        (["compare", "TRACE", "--baseline", "nothing"], "architecture 'nothing' is not known"),
        (["report", "absent.json"], "absent.json cannot be read"),
        (["report", "TRACE"], "is not JSON"),
        (["bench", "kernels", "--device", "tpu"], "device 'tpu' is not one of auto, cpu, cuda"),
        (["bench", "kernels", "--device", "cpu", "--blocks", "16,many"], "blocks: 'many' is no number"),
        (["bench", "kernels", "--device", "cpu", "--sparsities", "1.0"], "sparsities: 1.0 is out of range"),
        (["bench", "kernels", "--device", "cpu", "--kinds", "rnn"], "kinds: 'rnn' is not one of linear, conv, step"),
        (["bench", "kernels", "--device", "cpu", "--dtype", "int8"], "dtype 'int8' is not one of"),
        (["doctor", "--layers", "nothing"], "'nothing' is not module:function"),
        (["doctor", "--layers", "acf.units:nothing"], "cannot be imported"),
        (["capture", "resnet5"], "did you mean 'resnet50'"),
        (["capture", "ncf", "--batch", "1"], "batch 1 is below 2"),
        (["capture", "ncf", "--steps", "-1"], "steps -1 is below 0"),
        (["capture", "ncf", "--captured", "1"], "needs a second example"),
        (["capture", "ncf", "--learning-rate", "0"], "learning rate 0.0 is not above 0"),
        (["capture", "vgg16", "--image-size", "32"], "image size 32 is below 64"),
        (["capture", "vit-b16", "--image-size", "100"], "does not divide into patches of 16"),
        (["capture", "vgg16", "--device", "tpu"], "device 'tpu' is not one of cpu, cuda"),
        (["capture", "bert-base"], "needs a folder; name the folder that holds it with --data or $ACF_DATA"),
        (["capture", "bert-base", "--data", "absent"], "sentence-polarity cannot be read in absent"),
        (["capture", "vgg16", "--data", "absent", "--data-set", "fashion-mnist"], "cannot be read in absent"),
        (["capture", "vgg16", "--data-set", "sentence-polarity"], "does not fit a network that reads images"),
        (["epochs", "vgg8", "--stage", "half"], "stage 'half' is not one of both, train, play"),
        (
            ["bench", "resnet50", "--systems", "pruned"],
            "system 'pruned' is not one of dense, masked, rigl, static, 2:4",
        ),
        (["bench", "transformer", "--device", "cpu", "--data-set", "lines", "--json"], "data set lines needs a folder"),
        (["bench", "transformer", "--render", "--name", "none"], "holds no evaluation.sqlite"),
        (["bench", "fabric", "--sparsities", "half"], "--sparsity 'half' are not numbers with commas between"),
        (["traces", "absent.safetensors"], "absent.safetensors is not a file"),
        (["traces", "two\nlines\x1b[2J"], "two\\nlines\\x1b[2J is not a file"),
        (["demo", "--sparsity", "1.5"], "sparsity 1.5 is outside [0, 1)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    trace_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACF_DATA", raising=False)
    code, errors = run_main([argument.replace("TRACE", str(trace_path)) for argument in arguments], monkeypatch, capsys)
    assert code == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.safetensors"]  # nothing was left behind


def test_an_ablation_prints_a_table_and_writes_records_and_a_page(tmp_path: Path) -> None:
    arguments = ["bench", "ablation", "--what", "balancer", "--examples", "8", "--sparsity", "0.9", "--seeds", "1"]
    done = RUNNER.invoke(app, [*arguments, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "longest" in done.output
    assert {path.name for path in tmp_path.iterdir()} == {"balancer.json", "balancer.md", "ablations.html"}
    again = RUNNER.invoke(app, [*arguments, "--out", str(tmp_path), "--json"])
    assert json.loads(again.output)["data"][0]["ablation"] == "balancer"
    assert len(json.loads(again.output)["data"][0]["points"]) == 6
