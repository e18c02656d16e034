"""Images in one folder per class, such as ImageNet: ``train/CLASS/*.JPEG`` and ``val/CLASS/*.JPEG``."""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acf.errors import DataError
from acf.extras import import_optional

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")
TEST_FOLDERS = ("val", "validation", "test")
MEAN, DEVIATION = (
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
)  # of ImageNet's pixels in [0, 1], as torchvision has them
_LEAST_AREA, _RATIOS, _TRIES = 0.08, (3 / 4, 4 / 3), 10  # the random crop: Szegedy et al., 2015, section 6


@dataclass(frozen=True)
class ImageFiles:
    """The files of one part and their class numbers, by the alphabetical order of the class folders."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]


def find_images(folder: Path, classes: tuple[str, ...] | None = None) -> ImageFiles:
    """All images below the class folders of ``folder``; with ``classes`` these and no others are allowed."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; pass --data with a folder that holds train/CLASS/ and val/CLASS/")
    found = tuple(sorted(each.name for each in folder.iterdir() if each.is_dir()))
    if classes is not None and found != classes:
        odd = sorted(set(found) ^ set(classes))[0]
        raise DataError(f"{folder}: class {odd} is in one of the two parts alone; both need the same class folders")
    pairs = [
        (path, number)
        for number, name in enumerate(found)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if not pairs:
        raise DataError(f"{folder} holds no images in class folders; it needs such as {folder}/n01440764/image.JPEG")
    return ImageFiles(tuple(path for path, _ in pairs), tuple(label for _, label in pairs), found)


class FolderImages:
    """The images of a folder as batches ``[batch, 3, size, size]`` on a device, decoded by threads.

    Training images are cropped at random to 8 to 100 % of their area and mirrored; test images are resized to 8/7 of
    ``size`` and cropped in the middle. `prefetch` starts to decode a batch that will be asked for next.
    """

    def __init__(self, folder: Path, size: int, device: torch.device, threads: int = 8) -> None:
        require_pillow()
        self.files = find_images(folder / "train")
        present = [folder / name for name in TEST_FOLDERS if (folder / name).is_dir()]
        if not present:
            raise DataError(f"{folder} has no {', '.join(TEST_FOLDERS)}; put the test images into {folder}/val/CLASS/")
        self.test_files = find_images(present[0], self.files.classes)
        self.size, self.device = size, device
        self.train_labels = torch.tensor(self.files.labels, device=device)
        self.test_labels = torch.tensor(self.test_files.labels, device=device)
        self._threads = ThreadPoolExecutor(threads)
        self._ahead: dict[tuple[int, ...], list[Future[NDArray[np.uint8]]]] = {}

    def __len__(self) -> int:
        return len(self.files.paths)

    def prefetch(self, indices: Tensor, seed: int) -> None:
        """Start to decode the training images at ``indices``; their crops follow from ``seed`` and the index."""
        key = tuple(indices.tolist())
        if key not in self._ahead:
            while len(self._ahead) > 1:  # batches that nobody asked for after all
                for waiting in self._ahead.pop(next(iter(self._ahead))):
                    waiting.cancel()
            crops = [np.random.default_rng((seed, index)) for index in key]
            self._ahead[key] = [
                self._threads.submit(_training_image, self.files.paths[index], self.size, crop)
                for index, crop in zip(key, crops, strict=True)
            ]

    def train_batch(self, indices: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The training images at ``indices [batch]``, augmented as the seed of ``generator`` says, and their labels."""
        self.prefetch(indices, generator.initial_seed())
        waiting = self._ahead.pop(tuple(indices.tolist()))
        images = [each.result() for each in waiting]
        return self._normalise(images), self.train_labels[indices.to(self.device)]

    def test_batch(self, part: slice) -> tuple[Tensor, Tensor]:
        """Test images without augmentation, and their labels."""
        images = self._threads.map(lambda path: _test_image(path, self.size), self.test_files.paths[part])
        return self._normalise(images), self.test_labels[part]

    def _normalise(self, images: Iterable[NDArray[np.uint8]]) -> Tensor:
        pixels = torch.from_numpy(np.stack(list(images))).to(self.device).float() / 255
        mean, deviation = (torch.tensor(each, device=self.device) for each in (MEAN, DEVIATION))
        return ((pixels - mean) / deviation).permute(0, 3, 1, 2)


def require_pillow() -> Any:
    """Pillow's ``Image``, or the line that says how to install it."""
    return import_optional("PIL.Image", needed_by="an image folder")


def _training_image(path: Path, size: int, random: np.random.Generator) -> NDArray[np.uint8]:
    def crop(width: int, height: int) -> tuple[float, float, float, float]:
        for _ in range(_TRIES):
            area = random.uniform(_LEAST_AREA, 1.0) * width * height
            ratio = math.exp(random.uniform(math.log(_RATIOS[0]), math.log(_RATIOS[1])))
            w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if w <= width and h <= height:
                left, top = random.uniform(0, width - w), random.uniform(0, height - h)
                return left, top, left + w, top + h
        return _middle(width, height, 1.0)

    pixels = _decoded(path, size, crop)
    return np.ascontiguousarray(pixels[:, ::-1]) if random.random() < 0.5 else pixels


def _test_image(path: Path, size: int) -> NDArray[np.uint8]:
    return _decoded(path, size, lambda width, height: _middle(width, height, 7 / 8))


def _middle(width: int, height: int, share: float) -> tuple[float, float, float, float]:
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


Crop = Callable[[int, int], tuple[float, float, float, float]]


def _decoded(path: Path, size: int, crop: Crop) -> NDArray[np.uint8]:
    """Pixels ``[size, size, 3]`` of the part that ``crop`` chooses, bilinear."""
    image_module = require_pillow()
    try:
        with image_module.open(path) as image:
            colour = image.convert("RGB")
            return np.asarray(colour.resize((size, size), image_module.Resampling.BILINEAR, box=crop(*colour.size)))
    except OSError as error:
        raise DataError(f"{path} is no image that Pillow reads ({error}); delete it or download it again") from error
