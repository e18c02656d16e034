"""Train a block-sparse CNN on real images, capture a step, play it on three machines and write a report.

    python examples/01_train_sparse.py [--steps 120] [--folder runs/01]

Needs scikit-learn, whose digits are the images (the extra ``demo``).
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import acf


def load_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Images [1797, 1, 8, 8] in [0, 1] and their labels."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


def build_model() -> nn.Sequential:
    """A small CNN; its first and last layer are too thin for a block of 16 and stay dense."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main(steps: int, folder: Path) -> None:
    """Train, capture, simulate, report."""
    torch.manual_seed(0)
    images, labels = load_images()
    model = build_model()
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.9, block=16, distribution="erk"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=steps, every=max(1, steps // 10)))

    for _ in range(steps):
        batch = torch.randint(0, 1500, (64,))
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
    moved = sum(change.moved_blocks for change in topology.changes)
    print(f"accuracy {accuracy:.1%} with {acf.weight_sparsity(model):.1%} of the weights absent, {moved} blocks moved")

    with acf.capture(model, label="digits 90 %") as trace:
        nn.functional.cross_entropy(model(images[:64]), labels[:64]).backward()
    trace.save(folder / "step.safetensors")
    results = [acf.simulate(trace, name) for name in ("tensorcore-512", "acf-512", "gpu-h200")]
    for result in results:
        print(f"{result.architecture:15} {result.seconds * 1e6:8.0f} us  U {result.utilization:5.1%}")
    print("report:", acf.report(results, folder / "report.html"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--folder", type=Path, default=Path("runs/01"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    main(arguments.steps, arguments.folder)
