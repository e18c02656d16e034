"""ResNet-50 on images: ImageNet as a folder, CIFAR-10, Fashion-MNIST, or scikit-learn's digits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acf.bench.evaluation.task import EpochOrder, step_generator
from acf.bench.training.task import TaskSpec, computing
from acf.errors import DataError
from acf.zoo.data.image_folder import FolderImages
from acf.zoo.data.images import DeviceImages, load_images
from acf.zoo.networks import NETWORKS
from acf.zoo.networks.resnet import BLOCKS, Bottleneck

TEST_BATCH = 500
SMALL_IMAGE = 64
"""Up to this height the network has the stem for small images."""

BASE_RATE, BASE_BATCH = 0.1, 256  # linear scaling of the learning rate: Goyal et al., 2017
DECAYS = {"folder": 1e-4}
DECAY = 5e-4
"""Weight decay on small images; on ImageNet He et al. (2016) have 1e-4."""

START_SCALE = 0.0
"""With it the last batch norm of every bottleneck starts, as in Goyal et al. (2017): a block is its shortcut at first.
Dense runs of a few epochs do better with 1, sparse ones with 0: docs/results/evaluation.md."""

SIZES: dict[str, tuple[int, tuple[int, ...]]] = {"base": (64, BLOCKS), "small": (16, (1, 1, 1, 1))}
"""Width and bottlenecks by stage: ResNet-50 itself, and a network that a CPU trains in seconds."""


class Images(Protocol):
    """Training and test images on a device."""

    test_labels: Tensor

    def __len__(self) -> int:
        """Training images."""

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Augmented images and labels."""

    def test_batch(self, part: slice) -> tuple[Tensor, Tensor]:
        """Test images and labels."""


@dataclass(frozen=True)
class ImageSource:
    """Images, and what a network for them must know: ``name`` is how to cite them, ``size`` is their height.

    ``prefetch(indices, seed)`` starts to read a batch that will be asked for next, where reading takes time.
    """

    images: Images
    name: str
    channels: int
    classes: int
    size: int
    prefetch: Callable[[Tensor, int], None] | None = None


def load_resnet50(data_set: str, folder: Path | None, spec: TaskSpec, device: torch.device) -> "ResNet50Task":
    """The task on the set of that name; without one CIFAR-10's JPEG copy, and the digits without a folder."""
    chosen = data_set or ("digits" if folder is None else "cifar10-jpeg")
    return ResNet50Task(spec, load_source(chosen, folder, spec.examples, device), device)


def load_source(data_set: str, folder: Path | None, examples: int, device: torch.device) -> ImageSource:
    """The images of the set of that name, its first ``examples`` for training, all of them for 0."""
    if data_set == "folder":
        if folder is None:
            raise DataError("an image folder needs --data with a folder that holds train/CLASS/ and val/CLASS/")
        found = FolderImages(folder, 224, device)
        return ImageSource(found, f"{folder.name} (image folder)", 3, len(found.files.classes), 224, found.prefetch)
    images = load_images(data_set, folder, examples)
    classes = int(images.train_labels.max()) + 1
    size = images.train_images.shape[1]
    return ImageSource(DeviceImages(images, device), images.name, images.channels, classes, size)


def default_spec(size: str, batch: int, data_set: str) -> TaskSpec:
    """Batch, peak learning rate and weight decay of the standard recipe."""
    rate = BASE_RATE * batch / BASE_BATCH
    decay = DECAYS.get(data_set, DECAY)
    return TaskSpec(f"resnet50-{size}", "top-1 %", SIZES[size][0], batch, rate, decay, start_scale=START_SCALE)


class ResNet50Task:
    """ResNet-50 with SGD, Nesterov momentum and label smoothing 0.1; quality is top-1 accuracy on the test part."""

    higher_is_better = True
    unit = "images"

    def __init__(self, spec: TaskSpec, source: ImageSource, device: torch.device) -> None:
        self.spec, self.source, self.device = spec, source, device
        self.images = source.images
        if spec.batch > len(self.images):
            raise DataError(
                f"a batch of {spec.batch} is more than the {len(self.images)} training images; pass a smaller --batch"
            )
        self.order = EpochOrder(len(self.images))

    @property
    def data(self) -> str:
        """Name of the set, and the images of both parts."""
        return f"{self.source.name}: {len(self.images)} training, {len(self.images.test_labels)} test images"

    def model(self, sizes: TaskSpec) -> nn.Module:
        """A fresh network in channels-last memory; convolutions start as in He et al. (2015)."""
        blocks = SIZES[self.spec.name.removeprefix("resnet50-")][1]
        source = self.source
        network = NETWORKS["resnet50"].build(
            source.classes, source.channels, sizes.width, source.size <= SMALL_IMAGE, blocks
        )
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(layer, Bottleneck):
                nn.init.constant_(layer.norm3.weight, START_SCALE if sizes.start_scale is None else sizes.start_scale)
        return network.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def batch(self, step: int, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Augmented images and labels; on a folder the next batch is decoded meanwhile."""
        seed = generator.initial_seed()
        batch = self.images.train_batch(self._indices(step, size, seed), step_generator(generator, step))
        if self.source.prefetch is not None:
            following = step_generator(generator, step + 1).initial_seed()
            self.source.prefetch(self._indices(step + 1, size, seed), following)
        return batch

    def _indices(self, step: int, size: int, seed: int) -> Tensor:
        return self.order.indices(step, size, seed).to(self.device)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Cross-entropy with label smoothing 0.1."""
        images, labels = batch
        return F.cross_entropy(model(images), labels, label_smoothing=0.1)

    def measure(self, model: nn.Module) -> float:
        """Top-1 accuracy, per cent."""
        return self.metrics(model)["top-1 %"]

    @torch.no_grad()
    def metrics(self, model: nn.Module) -> dict[str, float]:
        """Per cent of the test images whose label is the best, or among the best two or five."""
        model.eval()
        right = torch.zeros(5, dtype=torch.int64, device=self.device)
        for start in range(0, len(self.images.test_labels), TEST_BATCH):
            images, labels = self.images.test_batch(slice(start, start + TEST_BATCH))
            with computing(self.spec, self.device):
                best = model(images).topk(min(5, self.source.classes)).indices
            hits = (best == labels[:, None]).cumsum(1).sum(0)
            right += F.pad(hits, (0, 5 - len(hits)), value=len(labels))
        model.train()
        shares = (100.0 * right / len(self.images.test_labels)).tolist()
        return {"top-1 %": shares[0], "top-2 %": shares[1], "top-5 %": shares[4]}

    def optimizer(self, model: nn.Module, sizes: TaskSpec) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum."""
        rate = torch.tensor(sizes.rate, device=self.device)
        return torch.optim.SGD(
            model.parameters(), lr=rate, momentum=0.9, nesterov=True, weight_decay=sizes.weight_decay, fused=True
        )

    def steps(self, epochs: float, batch: int) -> int:
        """Whole batches only."""
        return max(1, ceil(epochs * (len(self.images) // batch)))

    def for_tuning(self) -> "ResNet50Task":
        """The evaluation uses fixed recipes."""
        raise DataError("the evaluation tunes nothing; use `acf bench training --tune-rates`")

    def examples_per_step(self, size: int) -> float:
        """Images."""
        return float(size)

    def outputs(self, model: nn.Module) -> list[str]:
        """None: accuracies say all."""
        return []

    @property
    def references(self) -> Sequence[str]:
        """None."""
        return ()

    def captured_batch(self, examples: int) -> tuple[Tensor, ...]:
        """Test images, the first ones."""
        return self.images.test_batch(slice(0, examples))
