"""Images with a training and a test part, and what augmentation does to them on a device."""

from pathlib import Path

import pytest
import torch

from acf.errors import DataError
from acf.zoo.data.images import DeviceImages, ImageSet, load_images


def test_training_images_are_shifted_and_mirrored_each_on_its_own():
    ramp = torch.arange(36, dtype=torch.uint8).reshape(1, 6, 6, 1).repeat(32, 1, 1, 1)
    labels = torch.zeros(32, dtype=torch.int64)
    data = DeviceImages(ImageSet("ramp", 2, ramp, labels, ramp, labels), torch.device("cpu"))
    batch, _ = data.train_batch(torch.arange(32), torch.Generator().manual_seed(0))
    assert batch.shape == (32, 1, 6, 6)
    assert len({tuple(image.flatten().tolist()) for image in batch}) > 10
    centres = (batch[:, 0, 2:4, 2:4] * data.deviation + data.mean).round()
    assert centres.min() >= 0
    assert centres.max() <= 35


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("PIL")
    from tests.zoo.data.jpeg_set import write_jpeg_set

    write_jpeg_set(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("examples", "held_out", "train", "test"),
    [
        (0, 0, [0, 1, 2, 3, 4, 5], [0, 1]),
        (4, 0, [0, 1, 2, 3], [0, 1]),
        (0, 2, [0, 1, 2, 3], [4, 5]),
        (3, 2, [0, 1, 2], [4, 5]),
    ],
)
def test_the_first_images_train_and_those_held_out_are_the_last(
    folder: Path, examples: int, held_out: int, train: list[int], test: list[int]
) -> None:
    found = load_images("cifar10-jpeg", folder, examples, held_out)
    assert (found.train_labels.tolist(), found.test_labels.tolist()) == (train, test)
    assert found.train_images.shape == (len(train), 32, 32, 3)
    assert found.test_images.shape == (len(test), 32, 32, 3)
    assert found.channels == 3


@pytest.mark.parametrize(("examples", "held_out"), [(7, 0), (5, 2), (0, 6), (-1, 0), (0, -1)])
def test_more_images_than_there_are_is_refused(folder: Path, examples: int, held_out: int) -> None:
    expected = f"{examples} examples and {held_out} held out do not fit the 6 training images of cifar10-jpeg"
    with pytest.raises(DataError, match=expected):
        load_images("cifar10-jpeg", folder, examples, held_out)


def test_a_set_without_a_test_part_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(DataError, match=r"data set 'sentence-polarity' is not one of .*cifar10-jpeg"):
        load_images("sentence-polarity", None)
