"""One run: a network, a method and a seed, trained and tested."""

import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import acf
from acf.bench.accuracy.fates import BlockFates
from acf.bench.accuracy.methods import recipe_of
from acf.errors import SparsityError
from acf.ops import dense_products
from acf.options import option
from acf.zoo.data.images import DeviceImages
from acf.zoo.networks.cifar import NETWORKS

CLASSES = 10
_WARM_UP = 0.2  # share of the run over which the learning rate rises; then it falls, both linearly
_TEST_BATCH = 1000


@dataclass(frozen=True)
class TrainingSpec:
    """What all runs of a comparison share: SGD with Nesterov momentum 0.9, label smoothing 0.1, one rise and fall.

    ``examples`` of 0 are all training images; ``held_out`` of them are tested instead of the test images, if not 0.
    """

    data_set: str = option("cifar10-jpeg", "cifar10-jpeg or fashion-mnist.")
    network: str = option("resnet18", "resnet18, or small for a CPU.")
    width: int = option(64, "Channels of the first layer.", min=1)
    epochs: int = option(16, "Passes over the training images.", min=1)
    batch: int = option(256, "Images of a step.", min=1)
    learning_rate: float = option(0.2, "At its peak, after a fifth of the run.")
    weight_decay: float = 5e-4
    block: int = option(16, "Side of a weight block.", min=1)
    examples: int = option(0, "Training images to use; 0: all.", min=0)
    held_out: int = option(0, "Test on this many training images instead of the test part, to choose settings.", min=0)

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise SparsityError(f"network {self.network!r} is not one of {', '.join(NETWORKS)}; use one of these names")
        for name in ("width", "epochs", "batch", "block"):
            if getattr(self, name) < 1:
                raise SparsityError(f"{name} {getattr(self, name)} is below 1; pass a positive whole number")


@dataclass(frozen=True)
class RunRecord:
    """One finished run: ``accuracy`` in per cent of the tested images.

    ``sparsity`` is the share of weights not stored at the end, ``mean_density`` the share of blocks present over the
    run; ``dropped_again`` says how many of the dropped blocks had been grown at the move just before.
    """

    method: str
    seed: int
    accuracy: float
    loss: float
    seconds: float
    sparsity: float
    mean_density: float = 1.0
    moves: int = 0
    dropped_again: float | None = None


def train_once(spec: TrainingSpec, images: DeviceImages, method: str, seed: int, device: torch.device) -> RunRecord:
    """Train a new network by ``method`` from ``seed`` and test it once, at the end.

    The block-sparse layers compute through dense products: the mathematics of the method at the speed of the dense
    library, since speed is not what is measured here.
    """
    started = time.perf_counter()
    torch.manual_seed(seed)
    recipe = recipe_of(method, spec.block)
    model = NETWORKS[spec.network](images.test_images.shape[3], CLASSES, spec.width)
    model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.sparsity is not None:
        acf.sparsify_(model, recipe.sparsity)
    total_steps = spec.epochs * (len(images) // spec.batch)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=spec.learning_rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=spec.weight_decay,
        fused=device.type == "cuda",
    )
    fates = BlockFates(model) if recipe.policy is not None else None
    if recipe.policy is not None:
        acf.attach(model, optimizer, recipe.policy(total_steps, seed), on_move=fates)
    with dense_products():
        loss = _train(model, optimizer, spec, images, seed, total_steps)
        accuracy = measure_accuracy(model, images)
    return RunRecord(
        method,
        seed,
        accuracy,
        loss,
        round(time.perf_counter() - started, 2),
        acf.weight_sparsity(model),
        fates.mean_density(total_steps) if fates else 1.0,
        fates.moves if fates else 0,
        fates.dropped_again_share if fates else None,
    )


def _train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    spec: TrainingSpec,
    images: DeviceImages,
    seed: int,
    total_steps: int,
) -> float:
    """Train for ``total_steps``; the loss of the last step."""
    device = images.train_labels.device
    generator = torch.Generator(device).manual_seed(seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rise_and_fall(step, total_steps))
    model.train()
    loss = torch.zeros(())
    for step in range(total_steps):
        start = step * spec.batch % (len(images) // spec.batch * spec.batch)
        if start == 0:
            order = torch.randperm(len(images), device=device, generator=generator)
        inputs, labels = images.train_batch(order[start : start + spec.batch], generator)
        with autocast(device):
            loss = F.cross_entropy(model(inputs), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return float(loss.detach())


def rise_and_fall(step: int, total_steps: int) -> float:
    """Factor on the learning rate: from near 0 up to 1 in the first fifth of the run, then down to near 0.

    >>> [round(rise_and_fall(step, 10), 3) for step in (0, 1, 2, 9)]
    [0.5, 1.0, 0.889, 0.111]
    """
    peak = max(1, round(_WARM_UP * total_steps))
    if step < peak:
        return (step + 1) / peak
    return (total_steps - step) / (total_steps - peak + 1)


def autocast(device: torch.device) -> Any:
    """Products in bfloat16 on a GPU, in float32 on a CPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


@torch.no_grad()
def measure_accuracy(model: nn.Module, images: DeviceImages) -> float:
    """Per cent of the test images that ``model`` classifies right."""
    model.eval()
    right: Tensor | int = 0
    for start in range(0, len(images.test_labels), _TEST_BATCH):
        inputs, labels = images.test_batch(slice(start, start + _TEST_BATCH))
        with autocast(labels.device):
            right = right + (model(inputs).argmax(1) == labels).sum()
    return 100 * float(right) / len(images.test_labels)
