"""Figures of a trace: zeros, products with a zero, and speedups, checked on traces that can be counted by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import acf.sim
from acf.bench.traces import TENSORCORE_512, figures_of
from acf.cli import app


def gradient_trace(zero_rows: int) -> acf.Trace:
    """Two products of 512 x 512; the first ``zero_rows`` of every four columns of the gradient are zero."""
    gradient = np.ones((512, 512), dtype=bool)
    gradient[:, np.arange(512) % 4 < zero_rows] = False
    dense = np.ones((512, 512), dtype=bool)
    matmuls = [acf.Matmul("fc", "forward", dense, dense), acf.Matmul("fc", "input_grad", gradient, dense)]
    return acf.Trace.from_matmuls(matmuls, "half: 1 product of 2")


def test_zeros_are_counted_by_operand_and_pass() -> None:
    figures = figures_of(gradient_trace(zero_rows=2))
    assert figures.zeros == {"activation": 0.0, "weight": 0.0, "gradient": 0.5}
    assert figures.idle_macs == {"forward": 0.0, "input_grad": 0.5}
    assert figures.dense_macs == 2 * 512**3


def test_skipping_gains_where_the_zeros_are() -> None:
    figures = figures_of(gradient_trace(zero_rows=2))
    assert figures.tensordash["forward"] == 1.0
    assert 1.5 < figures.tensordash["input_grad"] <= 2.0
    assert 1.0 < figures.tensordash["compute"] < figures.tensordash["input_grad"]
    assert figures.spartann > 1.5


def test_a_pass_that_did_not_run_gains_nothing() -> None:
    assert figures_of(gradient_trace(zero_rows=2)).tensordash["weight_grad"] == 1.0


def test_the_dense_machine_of_equal_peak_is_the_shipped_one() -> None:
    assert TENSORCORE_512.peak_flops == acf.sim.spec("acf-512").peak_flops


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_the_command_shows_one_row_per_trace(tmp_path: Path, option: list[str]) -> None:
    path = tmp_path / "half.safetensors"
    gradient_trace(zero_rows=2).save(path)
    output = CliRunner().invoke(app, ["traces", str(path), str(path), *option]).output
    if option:
        assert [row["zeros"]["gradient"] for row in json.loads(output)["data"]] == [0.5, 0.5]
    else:
        assert output.count("50%") == 4
