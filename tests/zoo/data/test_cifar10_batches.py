"""CIFAR-10's two public archives, unpacked."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from acf.errors import DataError
from acf.zoo.data import load_test_data
from acf.zoo.data.cifar10_batches import read_cifar10_batches

PIXELS = np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072)
LABELS = [3, 8]


def write_binary(folder: Path) -> None:
    target = folder / "cifar-10-batches-bin"
    target.mkdir()
    (target / "test_batch.bin").write_bytes(np.insert(PIXELS, 0, LABELS, axis=1).tobytes())


def write_pickle(folder: Path) -> None:
    target = folder / "cifar-10-batches-py"
    target.mkdir()
    (target / "test_batch").write_bytes(pickle.dumps({b"data": PIXELS, b"labels": LABELS}, protocol=2))


@pytest.mark.parametrize("write", [write_binary, write_pickle])
def test_both_layouts_give_the_same_images(write, tmp_path: Path) -> None:
    write(tmp_path)
    data = read_cifar10_batches(tmp_path, "test")
    assert data.inputs.shape == (2, 3, 32, 32)
    assert data.inputs.numpy().reshape(2, -1).tolist() == PIXELS.tolist()
    assert data.labels.tolist() == LABELS


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return os.getcwd, ()

    target = tmp_path / "cifar-10-batches-py"
    target.mkdir()
    (target / "test_batch").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DataError, match="getcwd, which CIFAR-10 does not"):
        read_cifar10_batches(tmp_path, "test")


def test_a_folder_without_either_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither cifar-10-batches-bin nor cifar-10-batches-py is in it"):
        load_test_data(tmp_path, "cifar10")
