"""SparTANN's small CNNs on images: Caffe's LeNet on Fashion-MNIST, Caffe's "CIFAR-10 quick" on all other sets."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import acf
from acf.bench.evaluation.resnet50 import ImageSource, ResNet50Task, load_source
from acf.bench.evaluation.systems import System
from acf.bench.training.task import TaskSpec
from acf.errors import SparsityError
from acf.zoo.networks import NETWORKS

CNNS = {"fashion-mnist": "lenet"}
"""The network of a data set; `OTHER_CNN` for those that are not named."""

OTHER_CNN = "cifar10-quick"
PEAK_RATES = {"lenet": 0.02, "cifar10-quick": 0.02}
DECAY = 5e-4
NOT_SPARSIFIED = ("classifier",)
"""SparTANN sparsifies the input gradients of convolutions: section 3.1."""


def load_cnn(data_set: str, folder: Path | None, batch: int, examples: int, device: torch.device) -> "CnnTask":
    """The task on the set of that name; Fashion-MNIST unless one is named, the digits without a folder."""
    chosen = data_set or ("digits" if folder is None else "fashion-mnist")
    network = CNNS.get(chosen, OTHER_CNN)
    spec = TaskSpec(f"cnn-{network}", "top-1 %", 0, batch, PEAK_RATES[network], DECAY, examples=examples)
    return CnnTask(network, spec, load_source(chosen, folder, examples, device), device)


class CnnTask(ResNet50Task):
    """A small CNN without normalisation, by the recipe of `ResNet50Task` at another learning rate."""

    def __init__(self, network: str, spec: TaskSpec, source: ImageSource, device: torch.device) -> None:
        super().__init__(spec, source, device)
        self.network = network

    def model(self, sizes: TaskSpec) -> nn.Module:
        """A fresh network with torch's own initial weights."""
        source = self.source
        network = NETWORKS[self.network].build(source.channels, source.classes, source.size)
        return network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def captured_batch(self, examples: int) -> tuple[Tensor, ...]:
        """Training images, always the same: thresholds follow gradients of training images."""
        generator = torch.Generator(self.device).manual_seed(0)
        return self.images.train_batch(torch.arange(examples, device=self.device), generator)


def convolutions_only(systems: Sequence[System]) -> list[System]:
    """The systems, with gradients sparsified at the convolutions alone."""
    return [
        replace(each, variant=replace(each.variant, dense_layers=NOT_SPARSIFIED)) if _is_gradient(each) else each
        for each in systems
    ]


def require_whole_batches(systems: Sequence[System], captured: int, batch: int) -> None:
    """Refuse traces of fewer examples than a step has, where a threshold belongs to the gradients of a whole batch."""
    if captured not in (0, batch) and any(_is_gradient(system) for system in systems):
        raise SparsityError(
            f"a traced step of {captured} examples has larger gradients than one of {batch}, so thresholds would not "
            f"fit; pass --captured {batch}, or 0 for no traces"
        )


def _is_gradient(system: System) -> bool:
    return isinstance(system.variant.recipe.sparsity, acf.GradientSparsity)
