"""Images with a training and a test part, kept on the device and augmented there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from acf.errors import DataError
from acf.zoo.data import DATA_SETS, load_test_data, load_training_data


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Training and test images, uint8 ``[n, h, w, channels]``, with their labels; ``name`` is how to cite the set."""

    name: str
    shift_pixels: int
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for coloured ones."""
        return self.train_images.shape[3]


def load_images(data_set: str, folder: Path | None, examples: int = 0, held_out: int = 0) -> ImageSet:
    """The set of that name in ``folder``: its first ``examples`` training images, all of them for 0.

    With ``held_out`` that many of the last training images serve as test part: a validation set for choosing settings.
    """
    known = [name for name, each in DATA_SETS.items() if each.has_test]
    if data_set not in known:
        raise DataError(f"data set {data_set!r} is not one of {', '.join(known)}; use one of these names")
    train = load_training_data("image", folder, data_set)
    count = len(train.labels) - held_out
    if not 0 <= held_out < len(train.labels) or not 0 <= examples <= count:
        raise DataError(
            f"{examples} examples and {held_out} held out do not fit the {len(train.labels)} training images of "
            f"{data_set}; ask for fewer"
        )
    test = load_test_data(folder, data_set) if held_out == 0 else train.part(slice(count, None))
    train = train.part(slice(0, examples or count))
    return ImageSet(
        train.name,
        DATA_SETS[data_set].shift_pixels,
        _last_channels(train.inputs),
        train.labels,
        _last_channels(test.inputs),
        test.labels,
    )


def _last_channels(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)  # not a view of the whole set


class DeviceImages:
    """An `ImageSet` on a device, handing out normalised batches ``[batch, channels, h, w]`` in channels-last memory."""

    def __init__(self, images: ImageSet, device: torch.device) -> None:
        shift = images.shift_pixels
        self.shift = shift
        self.size = images.train_images.shape[1]
        self.padded = _pad(images.train_images.to(device), shift)
        self.train_labels = images.train_labels.to(device)
        self.test_images = images.test_images.to(device)
        self.test_labels = images.test_labels.to(device)
        pixels = images.train_images[:5000].float().flatten(0, 2)
        self.mean, self.deviation = pixels.mean(0).to(device), pixels.std(0).to(device)

    def __len__(self) -> int:
        return len(self.train_labels)

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The training images at ``indices [batch]``, each randomly shifted and mirrored, and their labels."""
        return self._normalise(self._augment(indices, generator)), self.train_labels[indices]

    def test_batch(self, part: slice) -> tuple[Tensor, Tensor]:
        """Test images without augmentation, and their labels."""
        return self._normalise(self.test_images[part]), self.test_labels[part]

    def _augment(self, indices: Tensor, generator: torch.Generator) -> Tensor:
        if self.shift == 0:
            return self.padded[indices]
        draw = _drawer(len(indices), indices.device, generator)
        positions = torch.arange(self.size, device=indices.device)
        rows = draw(2 * self.shift + 1) + positions
        cols = draw(2 * self.shift + 1) + torch.where(draw(2) == 1, self.size - 1 - positions, positions)
        return self.padded[indices[:, None, None], rows[:, :, None], cols[:, None, :]]

    def _normalise(self, images: Tensor) -> Tensor:
        return ((images - self.mean) / self.deviation).permute(0, 3, 1, 2)


def _drawer(count: int, device: torch.device, generator: torch.Generator) -> Callable[[int], Tensor]:
    """A function that draws a column of ``count`` integers below its argument."""
    return lambda below: torch.randint(below, (count, 1), device=device, generator=generator)


def _pad(images: Tensor, pixels: int) -> Tensor:
    """``images [n, h, w, channels]`` with ``pixels`` of reflection padding at each edge."""
    if pixels == 0:
        return images
    planes = images.permute(0, 3, 1, 2)
    parts = [F.pad(part.float(), [pixels] * 4, mode="reflect").to(torch.uint8) for part in torch.split(planes, 5000)]
    return torch.cat(parts).permute(0, 2, 3, 1).contiguous()
