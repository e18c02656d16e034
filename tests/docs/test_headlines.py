"""The headline figures of the README are those of the records that it links to."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def record(name: str) -> Any:
    return json.loads((ROOT / "docs" / "results" / name).read_text())


def h200_step(width: int, mode: str) -> dict[str, Any]:
    """The training step of blocks of 128 at this model width."""
    steps = record("kernels-h200.json")["steps"]
    chosen = [step for step in steps if step["model"].startswith(f"d={width}") and step["mode"] == mode]
    (step,) = (step for step in chosen if step["block"] == 128)
    return step


def test_speed_and_memory_of_the_widest_transformer_are_of_one_run() -> None:
    step = h200_step(4096, "default")
    assert f"{step['ratio']:.1f}x as fast as dense, in {step['memory_ratio']:.2f} of its peak memory" in README


def test_the_narrowest_transformer_gains_with_cuda_graphs_and_loses_without() -> None:
    graphs, plain = h200_step(512, "reduce-overhead")["ratio"], h200_step(512, "default")["ratio"]
    assert f"{graphs:.1f}x as fast as dense; {plain:.1f}x without CUDA graphs" in README


def test_the_range_of_convolutions_is_that_of_blocks_of_64() -> None:
    ratios = [row["ratio"] for row in record("kernels-h200.json")["conv"] if row["block"] == 64]
    assert f"{min(ratios):.1f}x to {max(ratios):.1f}x as fast as cuDNN's" in README


def test_cpu_steps_are_those_of_blocks_of_32() -> None:
    steps = [step for step in record("kernels-cpu.json")["steps"] if (step["block"], step["sparsity"]) == (32, 0.9)]
    mlp, cnn = (next(step["ratio"] for step in steps if step["model"].startswith(kind)) for kind in ("mlp", "cnn"))
    assert f"{mlp:.1f}x (MLP) and {cnn:.1f}x (CNN) as fast as dense" in README


def test_accuracy_is_the_mean_over_seeds() -> None:
    runs = record("accuracy-width64.json")["runs"]
    dense = fmean(run["accuracy"] for run in runs if run["method"] == "dense")
    sparse = fmean(run["accuracy"] for run in runs if run["method"] != "dense")
    assert f"{dense - sparse:.1f} points of accuracy lost" in README


def test_the_fabric_is_compared_without_zeros_in_gradients() -> None:
    rows = record("fabric-dense-gradients.json")["rows"]
    fabric, dense = (
        next(row for row in rows if (row["machine"], row["sparsity"]) == (machine, 0.9))
        for machine in ("acf-512", "tensorcore")
    )
    faster, less_energy = dense["seconds"] / fabric["seconds"], dense["energy_j"] / fabric["energy_j"]
    assert f"{faster:.1f}x as fast as dense tensor cores of equal peak, with {less_energy:.1f}x less energy" in README


def test_the_training_run_has_speed_energy_and_accuracy_of_one_record() -> None:
    _, fixed, moving = record("training-resnet18.json")["summaries"]
    assert f"{fixed['speedup']:.2f}x as fast as dense with {fixed['energy_ratio']:.2f}x less energy" in README
    assert f"{-fixed['quality_gap']:.2f} points of accuracy below it" in README
    assert f"{moving['speedup']:.2f}x with {moving['moves']:.0f} moves of blocks" in README
