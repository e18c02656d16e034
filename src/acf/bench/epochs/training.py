"""Train a VGG for whole epochs and capture steps on the way, on a CPU or a GPU.

Needs neither the simulator nor its dependencies: machines with a GPU often have little more than torch.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.bench import OnProgress
from acf.errors import DataError
from acf.files import write_whole
from acf.options import option
from acf.trace import Trace
from acf.zoo.capture import capture_step
from acf.zoo.data import LabelledData
from acf.zoo.networks import NETWORKS
from acf.zoo.training import (
    check_device,
    check_known,
    check_least,
    check_rate,
    count_correct,
    shuffled_batches,
    train_step,
)

NETWORK_NAMES = {"vgg16": "vgg16-cifar", "vgg16-bn": "vgg16-bn-cifar", "vgg8": "vgg8-cifar"}
"""Networks of the zoo by the name that `acf epochs` takes."""

IMAGE_SIZE = 32
TRAINING_FILE = "training.json"
_MOMENTUM = 0.9
_WEIGHT_DECAY = 5e-4
_SHIFT = 4  # pixels by which augmentation shifts at most


@dataclass(frozen=True)
class EpochSpec:
    """A training run of ``epochs`` and what to capture: a step before the first epoch and after ``every`` epochs.

    SGD with Nesterov momentum 0.9 and weight decay 5e-4; the learning rate warms up linearly to ``learning_rate`` over
    the first twentieth of the run and decays to 0 by a cosine. Images are mirrored and shifted at random. ``held_out``
    examples measure accuracy and are not trained on; ``examples``: how many are, 0: all others.
    """

    network: str = option("vgg16", "vgg16, vgg16-bn or vgg8, for images of 32 x 32.", argument=True)
    epochs: int = option(60, "Passes over the training data.")
    every: int = option(1, "Capture a step after every so many epochs, and before the first.")
    batch: int = option(128, "Examples of a training step.")
    captured: int = option(8, "Examples of a captured step.")
    learning_rate: float = option(0.05, "Highest rate; it falls to 0 as a cosine.")
    held_out: int = option(5000, "Examples that are only scored.")
    examples: int = option(0, "Examples to train on; 0: all that are not held out.")
    seed: int = option(0, "Seed of weights and batches.")
    device: str = option("cpu", "cpu or cuda.")

    def __post_init__(self) -> None:
        check_known("network", self.network, NETWORK_NAMES)
        check_least(self, epochs=1, every=1, batch=2, captured=2, held_out=1, examples=0)
        check_rate(self.learning_rate, "0.05")
        check_device(self.device)

    def captures(self, epoch: int) -> bool:
        """Whether a step is captured after ``epoch`` epochs."""
        return epoch == self.epochs or epoch % self.every == 0


@dataclass(frozen=True, eq=False)
class CapturedEpoch:
    """The ``trace`` and ``loss`` of a step after ``epoch`` epochs, ``accuracy`` on held-out examples in [0, 1].

    ``seconds`` is the time since training began.
    """

    epoch: int
    loss: float
    accuracy: float
    seconds: float
    trace: Trace


def captured_epochs(spec: EpochSpec, data: LabelledData) -> Iterator[CapturedEpoch]:
    """Train and yield every captured epoch; all of them capture a step on the same examples."""
    training, held_out = _split(spec, data)
    torch.manual_seed(spec.seed)
    model = NETWORKS[NETWORK_NAMES[spec.network]].build().to(spec.device)
    _initialise(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=spec.learning_rate, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY, nesterov=True
    )
    traced = training.batch(torch.arange(spec.captured), IMAGE_SIZE, spec.device)
    start = time.perf_counter()
    for epoch in range(spec.epochs + 1):
        if spec.captures(epoch):
            accuracy = _accuracy(spec, model, held_out)
            model.train()
            step = capture_step(model, traced, epoch, _label(spec, epoch, data.name))
            yield CapturedEpoch(epoch, step.loss, accuracy, time.perf_counter() - start, step.trace)
        if epoch < spec.epochs:
            _train_epoch(spec, model, optimizer, training, epoch)


def _label(spec: EpochSpec, epoch: int, data: str) -> str:
    return f"{spec.network}: {spec.captured} examples of 32 x 32 after {epoch} of {spec.epochs} epochs; {data}"


def keep_traces(epochs: Iterable[CapturedEpoch], folder: Path, on_progress: OnProgress, last_epoch: int) -> None:
    """Save every trace in ``folder`` as it comes, and its loss, accuracy and file name in ``training.json``."""
    known: list[dict[str, Any]] = []
    for each in epochs:
        name = f"epoch-{each.epoch:03d}.safetensors"
        each.trace.save(folder / name)
        loss = each.loss if math.isfinite(each.loss) else None  # JSON has no NaN
        facts = {"epoch": each.epoch, "loss": loss, "accuracy": each.accuracy, "seconds": each.seconds}
        known.append(facts | {"trace": name})
        write_whole(folder / TRAINING_FILE, json.dumps(known, indent=2).encode())
        on_progress(f"epoch {each.epoch}: accuracy {each.accuracy:.1%}", each.epoch / last_epoch)


def _split(spec: EpochSpec, data: LabelledData) -> tuple[LabelledData, LabelledData]:
    """Training and held-out examples on the device; the held-out ones are the last."""
    if data.inputs.dim() != 4:
        raise DataError(f"{data.name} has no images and {spec.network} reads images; use a data set of images")
    rest = len(data.inputs) - spec.held_out
    examples = spec.examples or rest
    if examples > rest or examples < max(spec.batch, spec.captured):
        raise DataError(
            f"{len(data.inputs)} examples of {data.name} do not give {spec.held_out} to score and {examples} to train "
            f"on in batches of {spec.batch}; use fewer, or smaller batches"
        )
    return data.part(slice(0, examples)).to(spec.device), data.part(slice(rest, None)).to(spec.device)


def _initialise(model: nn.Module) -> None:
    """Normal weights after He et al. (2015), biases 0: a VGG without normalisation does not learn otherwise."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.bias = nn.Parameter(torch.zeros(len(layer.weight), device=layer.weight.device))


def learning_rate(spec: EpochSpec, progress: float) -> float:
    """The learning rate at ``progress`` through the run, 0 to 1.

    >>> spec = EpochSpec(learning_rate=1.0)
    >>> [round(learning_rate(spec, share), 3) for share in (0.025, 0.05, 0.525, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    """
    warm_up = 0.05
    if progress < warm_up:
        return spec.learning_rate * progress / warm_up
    return spec.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def _train_epoch(
    spec: EpochSpec, model: nn.Module, optimizer: torch.optim.Optimizer, data: LabelledData, epoch: int
) -> None:
    generator = torch.Generator().manual_seed(spec.seed * 100_003 + epoch)
    steps = len(data.inputs) // spec.batch
    model.train()
    for step, indices in enumerate(islice(shuffled_batches(len(data.inputs), spec.batch, generator), steps), start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(spec, (epoch + step / steps) / spec.epochs)
        images, labels = data.batch(indices.to(spec.device), IMAGE_SIZE, spec.device)
        train_step(model, optimizer, (_augmented(images, generator), labels))


def _augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image mirrored with probability 1/2, the whole batch shifted alike; uncovered pixels are grey (0)."""
    flipped = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    images = torch.where(flipped[:, None, None, None], images.flip(3), images)
    row, column = torch.randint(0, 2 * _SHIFT + 1, (2,), generator=generator).tolist()
    size = images.shape[-1]
    return F.pad(images, (_SHIFT,) * 4)[:, :, row : row + size, column : column + size]


def _accuracy(spec: EpochSpec, model: nn.Module, data: LabelledData) -> float:
    """Fraction of ``data`` whose label has the highest score."""
    parts = torch.split(torch.arange(len(data.inputs), device=spec.device), 500)
    batches = (data.batch(indices, IMAGE_SIZE, spec.device) for indices in parts)
    return count_correct(model, batches) / len(data.inputs)
