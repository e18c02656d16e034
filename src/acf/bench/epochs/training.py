"""Training a small network for whole epochs and capturing a step on the way, on a CPU or a GPU.

Nothing here needs the simulator or what it stands on: machines with a GPU often have torch and little else.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import DataError
from acf.files import write_whole
from acf.options import option
from acf.trace import Trace
from acf.zoo.capture import capture_step, check_device
from acf.zoo.data.training_data import TrainingData
from acf.zoo.networks import SMALL_NETWORKS

IMAGE_SIZE = 32
TRAINING_FILE = "training.json"
OnProgress = Callable[[str, float], None]
_MOMENTUM = 0.9
_WEIGHT_DECAY = 5e-4
_SHIFT = 4  # pixels that an image is moved at most


@dataclass(frozen=True)
class EpochSpec:
    """A training run of ``epochs`` and what to capture: a step before the first epoch and after ``every`` epochs.

    Stochastic gradient descent with Nesterov momentum 0.9 and weight decay 5e-4; the rate rises to ``learning_rate``
    over the first twentieth of the run and falls to 0 as a cosine. Images are flipped and shifted at random. Of the
    data, ``held_out`` examples are only scored; ``examples`` is how many are trained on, 0: all others.
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
        if self.network not in SMALL_NETWORKS:
            close = get_close_matches(self.network, SMALL_NETWORKS, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise DataError(f"network {self.network!r} is not known; {hint}use one of {', '.join(SMALL_NETWORKS)}")
        limits = {"epochs": 1, "every": 1, "batch": 2, "captured": 2, "held_out": 1, "examples": 0}
        for name, smallest in limits.items():
            if getattr(self, name) < smallest:
                raise DataError(f"{name} {getattr(self, name)} is below {smallest}; use {smallest} or more")
        if self.learning_rate <= 0:
            raise DataError(f"learning rate {self.learning_rate} is not above 0; use for example 0.05")
        check_device(self.device)

    def captures(self, epoch: int) -> bool:
        """Whether a step is captured after ``epoch`` epochs."""
        return epoch == self.epochs or epoch % self.every == 0


@dataclass(frozen=True, eq=False)
class CapturedEpoch:
    """The ``trace`` of a step after ``epoch`` epochs; ``loss`` is that step's, ``accuracy`` that on held-out examples.

    ``seconds`` is what the run took so far.
    """

    epoch: int
    loss: float
    accuracy: float
    seconds: float
    trace: Trace


def captured_epochs(spec: EpochSpec, data: TrainingData) -> Iterator[CapturedEpoch]:
    """Train and yield every captured epoch; all of them capture a step on the same examples."""
    training, held_out = _split(spec, data)
    torch.manual_seed(spec.seed)
    model = SMALL_NETWORKS[spec.network]().to(spec.device)
    _initialise(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=spec.learning_rate, momentum=_MOMENTUM, weight_decay=_WEIGHT_DECAY, nesterov=True
    )
    traced = training.batch(torch.arange(spec.captured), IMAGE_SIZE, spec.device)
    start = time.perf_counter()
    for epoch in range(spec.epochs + 1):
        if spec.captures(epoch):
            yield _captured(spec, model, traced, held_out, epoch, start, data.name)
        if epoch < spec.epochs:
            _train_epoch(spec, model, optimizer, training, epoch)


def keep_traces(epochs: Iterable[CapturedEpoch], folder: Path, on_progress: OnProgress, last_epoch: int) -> None:
    """Save every trace in ``folder`` as it comes, and what is known about each in ``training.json``."""
    known: list[dict[str, Any]] = []
    for each in epochs:
        name = f"epoch-{each.epoch:03d}.safetensors"
        each.trace.save(folder / name)
        facts = {"epoch": each.epoch, "loss": each.loss, "accuracy": each.accuracy, "seconds": each.seconds}
        known.append(facts | {"trace": name})
        write_whole(folder / TRAINING_FILE, json.dumps(known, indent=2).encode())
        on_progress(f"epoch {each.epoch}: accuracy {each.accuracy:.1%}", each.epoch / last_epoch)


def _split(spec: EpochSpec, data: TrainingData) -> tuple[TrainingData, TrainingData]:
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
    parts = (slice(0, examples), slice(rest, None))
    return tuple(  # type: ignore[return-value]
        TrainingData(data.name, data.inputs[part].to(spec.device), data.labels[part].to(spec.device)) for part in parts
    )


def _initialise(model: nn.Module) -> None:
    """Normal weights after He et al. (2015), biases 0: a VGG without normalisation does not learn from less."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.bias = nn.Parameter(torch.zeros(len(layer.weight), device=layer.weight.device))


def learning_rate(spec: EpochSpec, progress: float) -> float:
    """The rate at ``progress`` through the run, 0 to 1.

    >>> spec = EpochSpec(learning_rate=1.0)
    >>> [round(learning_rate(spec, share), 3) for share in (0.025, 0.05, 0.525, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    """
    warm_up = 0.05
    if progress < warm_up:
        return spec.learning_rate * progress / warm_up
    return spec.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def _train_epoch(
    spec: EpochSpec, model: nn.Module, optimizer: torch.optim.Optimizer, data: TrainingData, epoch: int
) -> None:
    generator = torch.Generator().manual_seed(spec.seed * 100_003 + epoch)
    order = torch.randperm(len(data.inputs), generator=generator).to(spec.device)
    steps = len(order) // spec.batch
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(spec, (epoch + (step + 1) / steps) / spec.epochs)
        images, labels = data.batch(order[step * spec.batch : (step + 1) * spec.batch], IMAGE_SIZE, spec.device)
        optimizer.zero_grad()
        F.cross_entropy(model(_augmented(images, generator)), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every image flipped with a chance of one half, all of a batch shifted alike; what is uncovered is grey."""
    flipped = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    images = torch.where(flipped[:, None, None, None], images.flip(3), images)
    row, column = torch.randint(0, 2 * _SHIFT + 1, (2,), generator=generator).tolist()
    size = images.shape[-1]
    return F.pad(images, (_SHIFT,) * 4)[:, :, row : row + size, column : column + size]


def _captured(
    spec: EpochSpec,
    model: nn.Module,
    traced: tuple[Tensor, Tensor],
    held_out: TrainingData,
    epoch: int,
    start: float,
    data_name: str,
) -> CapturedEpoch:
    accuracy = _accuracy(spec, model, held_out)
    label = f"{spec.network}: {spec.captured} examples of 32 x 32 after {epoch} of {spec.epochs} epochs; {data_name}"
    model.train()
    step = capture_step(model, traced, epoch, label)
    return CapturedEpoch(epoch, step.loss, accuracy, time.perf_counter() - start, step.trace)


@torch.no_grad()
def _accuracy(spec: EpochSpec, model: nn.Module, data: TrainingData) -> float:
    """Share of ``data`` whose class has the highest score."""
    model.eval()
    right = 0
    for indices in torch.split(torch.arange(len(data.inputs), device=spec.device), 500):
        images, labels = data.batch(indices, IMAGE_SIZE, spec.device)
        right += int((model(images).argmax(dim=1) == labels).sum())
    return right / len(data.inputs)
