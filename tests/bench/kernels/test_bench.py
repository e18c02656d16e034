"""The kernel benchmark measures what it says; nothing here asserts a speed."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acf.bench.kernels import cpu
from acf.bench.kernels.cpu import ConvShape, LinearShape
from acf.bench.kernels.roofline import Ceilings, RooflinePoint, roofline_page
from acf.cli import app
from acf.errors import MissingDependencyError
from acf.ops.cpu import call
from acf.ops.cpu.call import instruction_set


def test_the_operations_of_a_pass_are_those_of_the_present_blocks() -> None:
    layer = cpu.bench_linear(LinearShape(8, 64, 32), block=16, sparsity=0.75, rounds=1)
    assert layer.present_weights == 2 * 16 * 16
    assert layer.operations == 2 * 8 * 2 * 16 * 16
    assert layer.bytes_moved == 4 * (8 * 32 + 8 * 64 + 2 * 16 * 16)
    assert layer.total.ratio > 0
    conv = cpu.bench_conv2d(ConvShape(2, 16, 32, 6, stride=2), block=16, sparsity=0.5, rounds=1)
    assert conv.operations == 2 * (2 * 3 * 3) * (9 * 16 * 16)


def test_every_pass_becomes_a_point_of_the_roofline() -> None:
    layer = cpu.bench_linear(LinearShape(8, 32, 32), block=16, sparsity=0.5, rounds=1)
    points = cpu.roofline_points([layer])
    assert [point.series for point in points] == ["forward", "input gradient", "weight gradient"]
    assert points[0].flop_per_s == pytest.approx(layer.operations / layer.forward.sparse_seconds)


def loaded_from(page: str) -> list[str]:
    """The addresses that the elements of a page load; what scripts hold is text."""
    found: list[str] = []

    class Elements(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(value or "" for name, value in attrs if name in ("src", "href"))

    Elements().feed(page)
    return found


def test_the_roofline_page_is_offline_and_names_its_points() -> None:
    page = roofline_page([RooflinePoint("forward", "a layer", 10.0, 5e9)], Ceilings(1e11, 1e10), "A machine")
    assert "a layer" in page
    assert "A machine" in page
    assert loaded_from(page) == []


def test_the_command_shows_and_keeps_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "LINEAR_SHAPES", (LinearShape(8, 32, 32),))
    arguments = ["--device", "cpu", "--kinds", "linear", "--blocks", "16", "--sparsities", "0.5", "--rounds", "1"]
    done = CliRunner().invoke(app, ["bench", "kernels", *arguments, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "linear 8x32x32" in done.output
    record = json.loads((tmp_path / "kernels-cpu.json").read_text())["data"]
    assert record["layers"][0]["ratio"] > 0
    assert record["ceilings"]["flop_per_s"] > 0
    assert (tmp_path / "roofline-cpu.html").exists()


def test_the_command_compares_instruction_sets_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "LINEAR_SHAPES", (LinearShape(8, 32, 32),))
    arguments = ["--device", "cpu", "--kinds", "linear", "--blocks", "16", "--sparsities", "0.5", "--rounds", "1"]
    best = instruction_set() or pytest.skip("no C++ compiler")
    wanted = ["--instructions", f"portable,{best}", "--json", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["bench", "kernels", *arguments, *wanted])
    assert [layer["instructions"] for layer in json.loads(done.output)["data"]["layers"]] == ["portable", best]
    refused = CliRunner().invoke(app, ["bench", "kernels", *arguments, "--instructions", "sse9"])
    assert "'sse9' is not one of portable" in str(refused.exception)


def test_instructions_that_the_machine_lacks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_instruction_set", lambda: 1)
    with pytest.raises(MissingDependencyError, match=r"'avx512' are not at hand.*at most avx2"):
        cpu.run_cpu_bench(cpu.CpuBenchSpec(instructions=("avx512",)), lambda *progress: None)


def test_doctor_times_the_layers_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_model.py").write_text(
        "import torch\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(32, 32)), torch.randn(4, 32)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = CliRunner().invoke(app, ["doctor", "--layers", "small_model:build", "--block", "16", "--json"])
    (timing,) = json.loads(done.output)["data"]
    assert timing["layer"] == "linear 32 to 32"
    assert timing["ratio"] > 0
