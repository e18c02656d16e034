"""One run: train a network by one method from one seed, and test it."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch
import torch.nn.functional as F
from torch import nn

import acf
from acf.bench.accuracy.methods import recipe_of
from acf.bench.accuracy.turnover import BlockTurnover
from acf.errors import SparsityError
from acf.ops import dense_products
from acf.options import option
from acf.zoo.data.images import DeviceImages
from acf.zoo.networks import NETWORKS
from acf.zoo.training import Batch, check_rate, count_correct, shuffled_batches

NETWORK_NAMES = {"resnet18": "resnet18-cifar", "small": "small-cnn"}
"""Networks of the zoo by the name that the option ``network`` takes."""

CLASSES = 10
_WARM_UP = 0.2  # fraction of the run over which the learning rate rises linearly; then it falls linearly
_TEST_BATCH = 1000


@dataclass(frozen=True)
class TrainingSpec:
    """What all runs of a comparison share: SGD with Nesterov momentum 0.9, label smoothing 0.1, one-cycle rate.

    ``examples``: training images, 0: all. ``held_out``: if not 0, test on so many training images instead.
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
        if self.network not in NETWORK_NAMES:
            raise SparsityError(
                f"network {self.network!r} is not one of {', '.join(NETWORK_NAMES)}; use one of these names"
            )
        check_rate(self.learning_rate, "0.2")
        for name in ("width", "epochs", "batch", "block"):
            if getattr(self, name) < 1:
                raise SparsityError(f"{name} {getattr(self, name)} is below 1; pass a positive whole number")


@dataclass(frozen=True)
class RunRecord:
    """One finished run: ``accuracy`` in per cent of the tested images.

    ``sparsity`` is the fraction of weights absent at the end, ``mean_density`` the fraction of blocks present, averaged
    over the run, ``dropped_again`` the fraction of dropped blocks that the update just before had regrown.
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

    Block-sparse layers compute through dense products: the mathematics of the method at the speed of the dense
    library, since this benchmark measures accuracy, not speed.
    """
    started = time.perf_counter()
    torch.manual_seed(seed)
    recipe = recipe_of(method, spec.block)
    model = build_network(spec.network, images.test_images.shape[3], spec.width).to(device)
    if recipe.sparsity is not None:
        acf.sparsify_(model, recipe.sparsity)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=spec.learning_rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=spec.weight_decay,
        fused=device.type == "cuda",
    )
    total_steps = spec.epochs * (len(images) // spec.batch)
    turnover = None
    if recipe.policy is not None:
        turnover = BlockTurnover(model)
        acf.attach(model, optimizer, recipe.policy(total_steps, seed), on_move=turnover)
    with dense_products():
        generator = torch.Generator(device).manual_seed(seed)
        batches = islice(shuffled_batches(len(images), spec.batch, generator), total_steps)
        loss = _train(model, optimizer, (images.train_batch(indices, generator) for indices in batches), total_steps)
        accuracy = measure_accuracy(model, images)
    return RunRecord(
        method,
        seed,
        accuracy,
        loss,
        round(time.perf_counter() - started, 2),
        acf.weight_sparsity(model),
        turnover.mean_density(total_steps) if turnover else 1.0,
        turnover.moves if turnover else 0,
        turnover.dropped_again_share if turnover else None,
    )


def build_network(name: str, channels: int, width: int) -> nn.Module:
    """A network of `NETWORK_NAMES` for ten classes, in channels-last memory."""
    model = NETWORKS[NETWORK_NAMES[name]].build(channels, CLASSES, width)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Batch], total_steps: int) -> float:
    """Train on ``total_steps`` batches with label smoothing; the loss of the last step."""
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rise_and_fall(step, total_steps))
    model.train()
    loss = torch.zeros(())
    for inputs, labels in batches:
        with autocast(labels.device):
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
    peak = rising_steps(total_steps)
    if step < peak:
        return (step + 1) / peak
    return (total_steps - step) / (total_steps - peak + 1)


def rising_steps(total_steps: int) -> int:
    """Steps in which the learning rate of a run rises."""
    return max(1, round(_WARM_UP * total_steps))


def autocast(device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16 on a GPU, in float32 on a CPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def measure_accuracy(model: nn.Module, images: DeviceImages) -> float:
    """Per cent of the test images that ``model`` classifies right."""
    count = len(images.test_labels)
    batches = (images.test_batch(slice(start, start + _TEST_BATCH)) for start in range(0, count, _TEST_BATCH))
    with autocast(images.test_labels.device):
        return 100 * float(count_correct(model, batches)) / count
