"""Images in class folders."""

from pathlib import Path

import pytest
import torch

from acf.errors import DataError
from acf.zoo.data.image_folder import FolderImages, find_images

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of flat colour: red and blue."""
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 3), ("val", 1)):
        for name, colour in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
            (tmp_path / part / name).mkdir(parents=True)
            for number in range(count):
                image.new("RGB", (20 + number, 30), colour).save(tmp_path / part / name / f"{number}.png")
    return tmp_path


def test_classes_are_numbered_in_alphabetical_order(folder: Path) -> None:
    images = FolderImages(folder, 16, CPU, threads=1)
    assert images.files.classes == ("cat", "dog")
    pixels, labels = images.test_batch(slice(0, 2))
    assert pixels.shape == (2, 3, 16, 16)
    assert labels.tolist() == [0, 1]
    assert pixels[0, 0].min() > pixels[0, 2].max(), "a cat is red"


def test_a_batch_follows_from_indices_and_seed_alone(folder: Path) -> None:
    images = FolderImages(folder, 16, CPU, threads=1)
    indices = torch.tensor([4, 1])
    images.prefetch(indices, 5)
    first, labels = images.train_batch(indices, torch.Generator().manual_seed(5))
    second, _ = images.train_batch(indices, torch.Generator().manual_seed(5))
    assert labels.tolist() == [1, 0]
    assert first.equal(second)


def test_a_folder_without_class_folders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no images in class folders"):
        find_images(tmp_path)
    with pytest.raises(DataError, match=r"is no folder; pass --data with a folder that holds train/CLASS/"):
        find_images(tmp_path / "train")


def test_parts_with_other_classes_are_refused(folder: Path) -> None:
    (folder / "val" / "fox").mkdir()
    with pytest.raises(DataError, match="class fox is in one of the two parts alone"):
        FolderImages(folder, 16, CPU)


def test_a_broken_image_is_named(folder: Path) -> None:
    (folder / "val" / "cat" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png is no image that Pillow reads"):
        FolderImages(folder, 16, CPU, threads=1).test_batch(slice(0, 2))
