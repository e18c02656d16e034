"""Choose sparsity, block size and machine together: every point trains a network and plays a step of it.

    python examples/codesign.py

Three objectives: test accuracy, time of a training step, area. A training run serves all machines that follow it. In
this folder, the same function is swept from the command line, in parallel, by ``acf sweep FILE.toml`` with:

    evaluate = "codesign:evaluate"
    minimise = ["step_seconds", "area_mm2"]
    maximise = ["accuracy"]
    [set]
    sparsity = [0.5, 0.75, 0.9]
    block = [8, 16]
    mesh_columns = [4, 8, 16]
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

import acf
from acf.sweep import Axes, OwnFunction, Sweep, run_sweep
from acf.zoo.data.digits import load_digits
from acf.zoo.training import count_correct, shuffled_batches, train_step, training_loss

AXES = Axes({"sparsity": (0.5, 0.9), "block": (8, 16), "mesh_columns": (4, 8)})
STEPS = 80


@cache
def trained(sparsity: float, block: int) -> tuple[float, acf.Trace]:
    """Test accuracy of an MLP on the digits after `STEPS` steps, and the trace of the step that follows."""
    torch.manual_seed(0)
    data = load_digits()
    train, test = data.train_images.flatten(1), data.test_images.flatten(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    hidden = acf.BlockSparsity(sparsity, block=block)
    acf.sparsify_(model, hidden, lambda module, _: isinstance(module, nn.Linear) and module.out_features == 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    acf.attach(model, optimizer, acf.BlockDST(total_steps=STEPS, every=20))
    batches = shuffled_batches(len(train), 64, torch.Generator().manual_seed(0))
    for _, batch in zip(range(STEPS), batches, strict=False):
        train_step(model, optimizer, (train[batch], data.train_labels[batch]))
    accuracy = count_correct(model, [(test, data.test_labels)]) / len(test)
    model.zero_grad()
    with acf.capture(model, f"{sparsity:.0%} in blocks of {block}") as trace:
        training_loss(model(train[:64]), data.train_labels[:64]).backward()
    return accuracy, trace


def evaluate(sparsity: float, block: int, mesh_columns: int) -> dict[str, float]:
    """The figures of one point; tiles of the machine are as large as the blocks."""
    accuracy, trace = trained(sparsity, block)
    result = acf.simulate(trace, acf.spec("acf-512", mesh_columns=mesh_columns, tile=block))
    return {
        "step_seconds": result.step_seconds,
        "area_mm2": result.total_area_mm2,
        "accuracy": accuracy,
        "energy_j": result.energy_j,
    }


def main() -> None:
    """The grid, best accuracy first among the points on the Pareto front."""
    if find_spec("sklearn") is None:
        print("skipped: the digits come with scikit-learn (pip install 'adaptive-compute-fabric[demo]')")
        return
    torch.set_num_threads(1)
    points = OwnFunction(
        "codesign:evaluate",
        minimise=("step_seconds", "area_mm2"),
        maximise=("accuracy",),
        slowest=("sparsity", "block"),
    )
    record = run_sweep(Sweep("co-design", AXES, points, Path("runs/codesign/sweep.sqlite")))
    for row in sorted(record.front, key=lambda row: -(row.attempt.figures or {})["accuracy"]):
        figures = row.attempt.figures or {}
        print(
            f"{row.attempt.changes}: accuracy {figures['accuracy']:.1%}, {figures['step_seconds'] * 1e6:.0f} us, "
            f"{figures['area_mm2']:.0f} mm2"
        )
    print(f"{len(record.front)} of {len(record.rows)} points on the front")
    for name, effects in record.importance.items():
        print(f"{name}: " + ", ".join(f"{share:.0%} of {objective}" for objective, share in effects.items()))


if __name__ == "__main__":
    main()
