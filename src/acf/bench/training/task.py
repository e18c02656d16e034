"""What a benchmark run needs to know of a task: model, batches, loss and quality. One class per kind of data."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.errors import DataError
from acf.zoo.data.images import DeviceImages, load_images
from acf.zoo.data.text import TokenBatches, load_tokens
from acf.zoo.networks import NETWORKS
from acf.zoo.networks.gpt import Gpt, GptSpec

CLASSES = 10
TEST_BATCH = 1000
VALIDATION_BATCHES = 24


@dataclass(frozen=True)
class TaskSpec:
    """The sizes of a task; ``width`` and ``rate`` are those of the variants that name none."""

    name: str
    quality: str
    width: int
    batch: int
    rate: float
    weight_decay: float
    layers: int = 0
    context: int = 0
    vocabulary: int = 0
    examples: int = 0


TASKS: dict[str, TaskSpec] = {
    "resnet18": TaskSpec("resnet18", "accuracy %", 128, 512, 0.4, 5e-4),
    "wrn28": TaskSpec("wrn28", "accuracy %", 10, 512, 0.4, 5e-4),
    "small": TaskSpec("small", "accuracy %", 32, 128, 0.2, 5e-4),
    "gpt": TaskSpec("gpt", "validation loss", 1024, 32, 6e-4, 0.1, layers=12, context=1024, vocabulary=16_384),
    "gpt-small": TaskSpec("gpt-small", "validation loss", 128, 4, 1e-3, 0.1, layers=2, context=64, vocabulary=512),
}
"""The tasks that `acf bench training` knows; "small" and "gpt-small" are of a CPU's size."""

IMAGE_NETWORKS = {"resnet18": "resnet18-cifar", "wrn28": "wrn28-10-cifar", "small": "small-cnn"}


class Task(Protocol):
    """A model and its data, on one device."""

    spec: TaskSpec
    device: torch.device
    higher_is_better: bool

    def model(self, width: int) -> nn.Module:
        """A fresh model of that width, on the device."""

    def batch(self, step: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The batch of a step, counted from 0."""

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The training loss of a batch."""

    def measure(self, model: nn.Module) -> float:
        """The quality of ``model`` on held-out data."""

    def optimizer(self, model: nn.Module, rate: float) -> torch.optim.Optimizer:
        """The optimizer of the task; its learning rate is a tensor, as CUDA graphs need it."""

    def steps(self, epochs: float) -> int:
        """Steps of so many passes over the training data."""


def load_task(spec: TaskSpec, data: Path | None, cache: Path, device: torch.device) -> Task:
    """The task of ``spec`` with its data on ``device``."""
    if data is None:
        raise DataError(f"{spec.name} needs data; pass --data with a folder of data sets, or the corpus of a GPT")
    return ImageTask(spec, data, device) if spec.name in IMAGE_NETWORKS else TextTask(spec, data, cache, device)


class ImageTask:
    """A convolutional network on CIFAR-10 (JPEG copy) or, for "small", Fashion-MNIST."""

    higher_is_better = True

    def __init__(self, spec: TaskSpec, data: Path, device: torch.device) -> None:
        self.spec, self.device = spec, device
        data_set = "fashion-mnist" if spec.name == "small" else "cifar10-jpeg"
        images = load_images(data_set, data, spec.examples)
        self.channels, self.images = images.channels, DeviceImages(images, device)
        self._order = torch.empty(0, dtype=torch.int64)

    def model(self, width: int) -> nn.Module:
        """A fresh network in channels-last memory."""
        network = NETWORKS[IMAGE_NETWORKS[self.spec.name]].build(self.channels, CLASSES, width)
        return network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def batch(self, step: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Augmented images and labels; a new random order every epoch."""
        size = self.spec.batch
        start = step % (len(self.images) // size) * size
        if start == 0:
            self._order = torch.randperm(len(self.images), device=self.device, generator=generator)
        return self.images.train_batch(self._order[start : start + size], generator)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Cross-entropy with label smoothing 0.1."""
        images, labels = batch
        return F.cross_entropy(model(images), labels, label_smoothing=0.1)

    @torch.no_grad()
    def measure(self, model: nn.Module) -> float:
        """Per cent of the test images that are classified right."""
        model.eval()
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        for start in range(0, len(self.images.test_labels), TEST_BATCH):
            images, labels = self.images.test_batch(slice(start, start + TEST_BATCH))
            with autocast(self.device):
                right += (model(images).argmax(1) == labels).sum()
        model.train()
        return 100.0 * float(right) / len(self.images.test_labels)

    def optimizer(self, model: nn.Module, rate: float) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum."""
        return torch.optim.SGD(
            model.parameters(),
            lr=torch.tensor(rate, device=self.device),
            momentum=0.9,
            nesterov=True,
            weight_decay=self.spec.weight_decay,
            fused=True,
        )

    def steps(self, epochs: float) -> int:
        """Whole batches only."""
        return max(1, round(epochs * (len(self.images) // self.spec.batch)))


class TextTask:
    """A GPT on the documents of one corpus."""

    higher_is_better = False

    def __init__(self, spec: TaskSpec, data: Path, cache: Path, device: torch.device) -> None:
        self.spec, self.device = spec, device
        tokens = load_tokens(data, spec.vocabulary, cache)
        self.train = TokenBatches(tokens.train, spec.context, device)
        self.validation = TokenBatches(tokens.validation, spec.context, device)

    def model(self, width: int) -> nn.Module:
        """A fresh GPT."""
        spec = GptSpec(width, self.spec.layers, self.spec.vocabulary, self.spec.context)
        return Gpt(spec).to(self.device)

    def batch(self, step: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Inputs and targets of random windows."""
        return self.train.draw(self.spec.batch, generator)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Mean cross-entropy of the next token, in nats."""
        tokens, targets = batch
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def measure(self, model: nn.Module) -> float:
        """Mean cross-entropy on held-out documents, in nats per token."""
        losses = []
        for batch in self.validation.in_order(self.spec.batch, VALIDATION_BATCHES):
            with autocast(self.device):
                losses.append(self.loss(model, *batch).float())
        return float(torch.stack(losses).mean())

    def optimizer(self, model: nn.Module, rate: float) -> torch.optim.Optimizer:
        """AdamW; embeddings and norms without decay."""
        decayed = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
        others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
        groups = [
            {"params": decayed, "weight_decay": self.spec.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups,
            lr=torch.tensor(rate, device=self.device),
            betas=(0.9, 0.95),
            fused=True,
            capturable=self.device.type == "cuda",
        )

    def steps(self, epochs: float) -> int:
        """Steps after which as many tokens were drawn as the corpus has, ``epochs`` times."""
        return max(1, ceil(epochs * self.train.tokens.numel() / (self.spec.batch * self.spec.context)))


def autocast(device: torch.device) -> torch.autocast:
    """Products in bfloat16 on a GPU, in float32 on a CPU; no cast is kept, as CUDA graphs need it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)
