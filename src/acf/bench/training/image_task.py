"""Convolutional networks on images, as tasks of `acf bench training`."""

from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.bench.training.task import TaskSpec, computing
from acf.errors import DataError
from acf.zoo.data.images import DeviceImages, ImageSet, load_images
from acf.zoo.networks import NETWORKS

CLASSES = 10
TEST_BATCH = 1000
TUNING_SHARE = 0.1
"""Part of the training images, the last ones, that is held out while settings are chosen."""

IMAGE_NETWORKS = {"resnet18": "resnet18-cifar", "wrn28": "wrn28-10-cifar", "small": "small-cnn"}


def load_image_task(spec: TaskSpec, data: Path, device: torch.device) -> "ImageTask":
    """The task of ``spec``: CIFAR-10 (JPEG copy) or, for "small", Fashion-MNIST."""
    data_set = "fashion-mnist" if spec.name == "small" else "cifar10-jpeg"
    return ImageTask(spec, load_images(data_set, data, spec.examples), device)


class ImageTask:
    """A convolutional network on a set of images."""

    higher_is_better = True

    def __init__(self, spec: TaskSpec, image_set: ImageSet, device: torch.device) -> None:
        self.spec, self.device, self.image_set = spec, device, image_set
        self.images = DeviceImages(image_set, device)
        self._order = torch.empty(0, dtype=torch.int64)

    @property
    def data(self) -> str:
        """Name of the set, and the images of both parts."""
        return f"{self.image_set.name}: {len(self.images)} training, {len(self.images.test_labels)} test images"

    def model(self, sizes: TaskSpec) -> nn.Module:
        """A fresh network in channels-last memory."""
        network = NETWORKS[IMAGE_NETWORKS[self.spec.name]].build(self.image_set.channels, CLASSES, sizes.width)
        return network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def batch(self, step: int, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Augmented images and labels; a new random order every epoch."""
        start = step % self._batches(size) * size
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
            with computing(self.spec, self.device):
                right += (model(images).argmax(1) == labels).sum()
        model.train()
        return 100.0 * float(right) / len(self.images.test_labels)

    def optimizer(self, model: nn.Module, sizes: TaskSpec) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum."""
        return torch.optim.SGD(
            model.parameters(),
            lr=torch.tensor(sizes.rate, device=self.device),
            momentum=0.9,
            nesterov=True,
            weight_decay=sizes.weight_decay,
            fused=True,
        )

    def steps(self, epochs: float, batch: int) -> int:
        """Whole batches only."""
        return max(1, round(epochs * self._batches(batch)))

    def for_tuning(self) -> "ImageTask":
        """The last tenth of the training images is held out and takes the place of the test images."""
        images = self.image_set
        kept = len(images.train_labels) - max(1, round(TUNING_SHARE * len(images.train_labels)))
        held_out = replace(
            images,
            train_images=images.train_images[:kept],
            train_labels=images.train_labels[:kept],
            test_images=images.train_images[kept:],
            test_labels=images.train_labels[kept:],
        )
        return ImageTask(self.spec, held_out, self.device)

    def _batches(self, size: int) -> int:
        """Whole batches of one epoch."""
        if size > len(self.images):
            raise DataError(f"a batch of {size} is more than the {len(self.images)} training images; use a smaller one")
        return len(self.images) // size
