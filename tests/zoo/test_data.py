"""Data sets: what is read from a folder, and how a batch is made of it."""

import gzip
import os
import struct
import zipfile
from pathlib import Path

import pytest
import torch

from acf.errors import DataError
from acf.zoo.data import DATA_SETS, data_sets_of, load_training_data
from acf.zoo.networks import NETWORKS

NEGATIVE, POSITIVE = "a dull film\n", "a fine film\nfine fine\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tiny files in the formats of Fashion-MNIST and the sentence polarity set."""
    (tmp_path / "fashion-mnist").mkdir()
    for part, axes in (("images-idx3", (2, 28, 28)), ("labels-idx1", (2,))):
        values = bytes(index % 10 for index in range(torch.Size(axes).numel()))
        with gzip.open(tmp_path / "fashion-mnist" / f"train-{part}-ubyte.gz", "wb") as file:
            file.write(struct.pack(f">4B{len(axes)}I", 0, 0, 8, len(axes), *axes) + values)
    (tmp_path / "sentence-polarity").mkdir()
    with zipfile.ZipFile(tmp_path / "sentence-polarity" / "sentence_polarity.zip", "w") as archive:
        archive.writestr("sentence_polarity/rt-polarity.neg", NEGATIVE)
        archive.writestr("sentence_polarity/rt-polarity.pos", POSITIVE)
    return tmp_path


def test_grey_images_become_three_channels_of_the_asked_size(folder: Path) -> None:
    data = load_training_data("image", folder, "fashion-mnist")
    images, labels = data.batch(torch.tensor([1, 0]), 64, "cpu")
    assert images.shape == (2, 3, 64, 64)
    assert labels.tolist() == [1, 0]
    assert float(images.min()) >= -2.0


def test_frequent_words_have_low_numbers_and_sentences_begin_with_the_class_token(folder: Path) -> None:
    data = load_training_data("sentence", folder)
    tokens, classes = data.batch(torch.arange(3), 0, "cpu")
    assert tokens.tolist() == [[1, 4, 6, 5], [1, 4, 3, 5], [1, 3, 3, 0]]  # fine 3, a 4, film 5, dull 6
    assert classes.tolist() == [0, 1, 1]


def test_word_pairs_say_whether_the_word_occurs(folder: Path) -> None:
    data = load_training_data("pair", folder)
    occurring = {tuple(pair) for pair in data.inputs[data.labels == 1].tolist()}
    assert occurring == {(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 0)}
    assert not occurring & {tuple(pair) for pair in data.inputs[data.labels == 0].tolist()}


def test_a_damaged_archive_is_one_line(folder: Path) -> None:
    (folder / "sentence-polarity" / "sentence_polarity.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match="sentence-polarity cannot be read"):
        load_training_data("sentence", folder)


@pytest.mark.parametrize("kept_bytes", [0, 5, 40])
def test_a_cut_file_is_one_line(folder: Path, kept_bytes: int) -> None:
    path = folder / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(DataError, match="fashion-mnist cannot be read"):
        load_training_data("image", folder, "fashion-mnist")


def test_every_data_set_fits_a_network() -> None:
    assert {data_set.kind for data_set in DATA_SETS.values()} <= {network.reads for network in NETWORKS.values()}
    assert data_sets_of("sentence") == ("sentence-polarity",)


def test_the_real_colour_images_are_those_of_the_data_set() -> None:
    pytest.importorskip("PIL", reason="cifar10-jpeg needs Pillow: pip install 'adaptive-compute-fabric[data]'")
    folder = Path(os.environ.get("ACF_DATA", ""))
    if not (folder / "cifar10-jpeg").is_dir():
        pytest.skip("no folder cifar10-jpeg in $ACF_DATA")
    data = load_training_data("image", folder)
    assert data.name == "CIFAR-10 (JPEG quality 80, 4:4:4)"
    assert data.inputs.shape == (50_000, 3, 32, 32)
    assert torch.bincount(data.labels).tolist() == [5_000] * 10


def test_a_data_set_for_other_networks_or_without_its_folder_is_refused() -> None:
    other = next(name for name, data_set in DATA_SETS.items() if data_set.kind != "image")
    with pytest.raises(DataError, match=f"data set '{other}' does not fit a network that reads images; use"):
        load_training_data("image", None, other)
    with pytest.raises(DataError, match="needs a folder; name the folder that holds it with --data"):
        load_training_data("image", None, "fashion-mnist")
