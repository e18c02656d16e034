"""Train a dense network, drop blocks by magnitude, by weight times input, or at random, and fine-tune what is left.

Prints the test accuracy before and after, and writes a record. On scikit-learn's digits by default; for Fashion-MNIST:
python examples/07_prune_trained.py --data FOLDER --examples 12000 --epochs 5 --record pruning.json
"""

import argparse
import copy
import datetime
import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import acf
from acf.records.provenance import commit_of, machine

BLOCK = 8
CALIBRATION_IMAGES = 256
CHOICES = ("magnitude", "weight x input", "random")


def load(folder: Path | None) -> tuple[str, list[Tensor]]:
    """Name of the data, and training images, training labels, test images, test labels; images in [0, 1]."""
    if folder is not None:
        from acf.zoo.data import load_test_data, load_training_data

        parts = (load_training_data("image", folder, "fashion-mnist"), load_test_data(folder, "fashion-mnist"))
        return "Fashion-MNIST", [each for part in parts for each in (part.inputs.float() / 255.0, part.labels)]
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        print("skipped: scikit-learn is not installed, and no --data was given")
        sys.exit(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    return "digits", [x[:1400], y[:1400], x[1400:], y[1400:]]


def network(side: int) -> nn.Sequential:
    """Three convolutions and two linear layers; no normalisation."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * (side // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float) -> None:
    """AdamW with a linear decay, in batches of 128."""
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    order = [part for _ in range(epochs) for part in torch.randperm(len(images), generator=random).split(128)]
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, len(order))
    for part in order:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Per cent of the test images."""
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True))
    return round(100.0 * right / len(labels), 2)


def takes(module: nn.Module, name: str) -> bool:
    """Leave the first convolution and the classifier dense, as usual; no block of 8 fits them."""
    return name not in ("0", "11")


def pruned(dense: nn.Module, choice: str, sparsity: float, images: Tensor) -> nn.Module:
    """A block-sparse copy of a trained network."""
    model = copy.deepcopy(dense)
    if choice == "random":
        order = copy.deepcopy(dense)
        for parameter in order.parameters():
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
        acf.sparsify_(order, acf.BlockSparsity(sparsity, block=BLOCK, rescale=False), takes)
        chosen = acf.densify_(order).state_dict()
        for name, parameter in model.named_parameters():
            if takes(model, name.split(".")[0]) and parameter.dim() > 1:
                parameter.data *= chosen[name] != 0.0  # what is zero is dropped first
    calibration = images[:CALIBRATION_IMAGES] if choice == "weight x input" else None
    acf.sparsify_(model, acf.BlockSparsity(sparsity, block=BLOCK, rescale=False), takes, calibration)
    return model


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder that holds fashion-mnist/")
    parser.add_argument("--examples", type=int, default=0, help="training images to use; 0: all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--tune-epochs", type=int, default=1)
    parser.add_argument("--sparsities", type=float, nargs="+", default=[0.5, 0.75, 0.9])
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    name, (images, labels, test_images, test_labels) = load(options.data)
    images, labels = images[: options.examples or None], labels[: options.examples or None]
    torch.manual_seed(0)
    dense = network(images.shape[-1])
    train(dense, images, labels, options.epochs, lr=2e-3)
    record = {
        "command": f"python examples/07_prune_trained.py {' '.join(sys.argv[1:])}".strip(),
        "commit": commit_of(Path(acf.__file__).parent),
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "data": f"{name}, {len(images)} training images",
        "dense_accuracy": accuracy(dense, test_images, test_labels),
        "rows": [],
    }
    print(f"{name}, dense: {record['dense_accuracy']:.2f} %")
    for sparsity in options.sparsities:
        for choice in CHOICES:
            model = pruned(dense, choice, sparsity, images)
            before = accuracy(model, test_images, test_labels)
            train(model, images, labels, options.tune_epochs, lr=1e-3)
            after = accuracy(model, test_images, test_labels)
            record["rows"].append({"sparsity": sparsity, "blocks": choice, "before": before, "after": after})
            print(f"{sparsity:.0%} sparse, {choice}: {before:.2f} % -> {after:.2f} % fine-tuned", flush=True)
    if options.record is not None:
        options.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
