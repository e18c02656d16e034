"""Sweep the sizes of a machine: variants of `acf-512` on one captured step, with the Pareto front.

    python examples/05_sweep.py

The same from the command line, with a report:

    acf sweep runs/05/step.safetensors --set mesh_columns=4,8,16 --set link_bytes=16,32,64 --name 05
    acf report runs/05/sweep.sqlite
"""

from pathlib import Path

import torch
from torch import nn

import acf
from acf.sweep import Axes, PlayedTraces, Sweep, run_sweep

FOLDER = Path("runs/05")


def capture_step(path: Path) -> None:
    """One training step of a block-sparse MLP, 90 %, as a file."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.9, block=16))
    x = torch.randn(256, 512)
    with acf.capture(model) as trace:
        (model(x) - x).square().mean().backward()
    trace.save(path)


def main() -> None:
    """Every combination of mesh width and link width; the record is kept, so a second run only prints."""
    step = FOLDER / "step.safetensors"
    if not step.exists():
        capture_step(step)
    axes = Axes({"mesh_columns": (4, 8, 16), "link_bytes": (16, 32, 64)})
    record = run_sweep(Sweep("sizes of acf-512", axes, PlayedTraces((step,), "acf-512"), FOLDER / "sweep.sqlite"))
    print(f"{'columns':>7} {'link':>5} {'step':>8} {'energy':>8} {'area':>9} {'U':>6}")
    for row in record.rows:
        changes, figures = row.attempt.changes, row.attempt.figures
        if figures is None:
            print(f"{changes['mesh_columns']:7} {changes['link_bytes']:5} {row.attempt.failure}")
            continue
        print(
            f"{changes['mesh_columns']:7} {changes['link_bytes']:5} {figures['step_seconds'] * 1e6:5.0f} us "
            f"{figures['energy_j'] * 1e6:5.0f} uJ {figures['area_mm2']:5.0f} mm2 {figures['step_utilization']:6.1%}"
            f"{' on the front' if row.on_front else ''}"
        )


if __name__ == "__main__":
    main()
