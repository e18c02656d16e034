"""Every example runs from an empty folder and prints what it promises."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

RUN_IN_FORKS = """
import os, runpy, sys, traceback
import numba, pydantic, torch, torch._dynamo  # once for all examples, which import acf themselves
torch.set_num_threads(1)

def run(folder, printed, *command):
    os.chdir(folder)
    output = os.open(printed, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1), os.dup2(output, 2)
    sys.argv = list(command)
    sys.path[0] = os.path.dirname(command[0])
    assert not any(name.split(".")[0] == "acf" for name in sys.modules)
    runpy.run_path(command[0], run_name="__main__")

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run(*line.rstrip("\\n").split("\\t"))
            code = 0
        except SystemExit as ended:
            code = 1 if ended.code else 0
            if isinstance(ended.code, str):
                print(ended.code, flush=True)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[subprocess.Popen[str]]:
    """A Python that has imported torch and numba, which runs every example in a fork."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN_IN_FORKS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        FORKS.append(process)
        yield process
        FORKS.clear()
        process.stdin.close()


FORKS: list[subprocess.Popen[str]] = []
"""The process of the fixture `forks`."""


def output_of(name: str, folder: Path, *options: str) -> str:
    """What an example prints; skipped with its reason where it skips itself."""
    printed = folder / "printed.txt"
    requests, answers = FORKS[0].stdin, FORKS[0].stdout
    assert requests is not None
    assert answers is not None
    print(folder, printed, EXAMPLES / name, *options, sep="\t", file=requests, flush=True)
    assert answers.readline() == "0\n", printed.read_text()
    output = printed.read_text()
    if output.startswith("skipped:"):
        pytest.skip(output.removeprefix("skipped:").strip())
    return output


def test_training_ends_in_a_report(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    output = output_of("01_train_sparse.py", tmp_path)
    assert "blocks moved" in output
    assert "acf-512" in output
    assert (tmp_path / "runs/01/report.html").exists()
    assert (tmp_path / "runs/01/step.safetensors").exists()


def test_a_policy_of_ones_own_moves_blocks(tmp_path: Path) -> None:
    lines = output_of("02_own_policy.py", tmp_path).splitlines()
    moved = {line[:12].strip(): int(line.split(",")[1].split()[0]) for line in lines}
    assert moved["static"] == 0
    assert moved["Algorithm 1"] > 0
    assert moved["early moves"] > 0


def test_an_accelerator_of_ones_own_stands_between_dense_and_the_fabric(tmp_path: Path) -> None:
    lines = output_of("03_own_accelerator.py", tmp_path).splitlines()
    speedups = [float(line.split("cycles, ")[1].split("x")[0]) for line in lines]
    assert speedups == sorted(speedups)
    assert speedups[0] == 1.0


def test_hugging_face_trains_a_sparse_model(tmp_path: Path) -> None:
    assert "of the sparse layers' weights are absent" in output_of("04_hugging_face.py", tmp_path)


def test_a_sweep_prints_a_row_per_variant_and_marks_the_front(tmp_path: Path) -> None:
    lines = output_of("05_sweep.py", tmp_path).splitlines()
    assert len(lines) == 10
    assert "on the front" in lines[1]
    assert (tmp_path / "runs/05/sweep.sqlite").exists()


def test_co_design_trains_and_simulates_every_point(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    output = output_of("codesign.py", tmp_path)
    assert "of 8 points on the front" in output
    assert "mesh_columns: " in output
    assert "0% of accuracy" in output.splitlines()[-1]  # a machine trains nothing


def test_a_small_fabric_becomes_verilog_and_agrees_with_the_simulator(tmp_path: Path) -> None:
    output = output_of("06_rtl.py", tmp_path, "--tiles", "2")
    assert "KiB of Verilog" in output
    assert "agree on every event" in output
    assert (tmp_path / "runs/06/small.v").exists()


def test_every_numbered_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    assert [path.name for path in sorted(EXAMPLES.glob("0*.py")) if path.name not in tested] == []


def test_a_trained_network_is_pruned_in_three_ways_and_fine_tuned(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    options = ("--examples", "300", "--epochs", "1", "--sparsities", "0.75", "--record", "record.json")
    output = output_of("07_prune_trained.py", tmp_path, *options)
    assert output.count("75% sparse") == 3
    record = json.loads((tmp_path / "record.json").read_text())
    assert [row["blocks"] for row in record["rows"]] == ["magnitude", "weight x input", "random"]
    assert {"command", "commit", "date"} <= set(record)


def test_steps_of_a_gpu_are_measured_or_skipped_with_the_reason(tmp_path: Path) -> None:
    steps = json.loads(output_of("gpu_steps.py", tmp_path))
    assert {(step["network"], step["compiled"]) for step in steps} >= {("resnet50", True), ("transformer-base", True)}


def test_the_transformer_of_the_gpu_steps_is_transformer_base(tmp_path: Path) -> None:
    code = f"import sys; sys.path[0] = {str(EXAMPLES)!r}; import torch, gpu_steps\n"
    code += "body = gpu_steps.Body(); print(*body(torch.zeros(1, 2, 512), torch.zeros(1, 2, 512)).shape)\n"
    code += "print(sum(p.numel() for name, p in body.named_parameters() if p.dim() == 2))"
    program = tmp_path / "body.py"
    program.write_text(code)
    shape, weights = output_of(str(program), tmp_path).splitlines()
    assert shape == "1 2 512"
    assert int(weights) == 6 * (4 + 8) * 512**2 + 6 * 2 * 2 * 512 * 2048
