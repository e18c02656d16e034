"""The data sets, each read from its usual public layout, by name.

>>> data_sets_of("image")
('cifar10-jpeg', 'fashion-mnist', 'digits', 'cifar10')
"""

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acf.errors import AcfError, DataError
from acf.zoo.data.cifar10 import read_cifar10
from acf.zoo.data.cifar10_batches import read_cifar10_batches
from acf.zoo.data.digits import read_digits
from acf.zoo.data.fashion_mnist import read_fashion_mnist
from acf.zoo.data.labelled_data import LabelledData
from acf.zoo.data.sentence_polarity import read_sentence_classes, read_word_occurrences
from acf.zoo.data.translation import read_translation

__all__ = ["DATA_SETS", "DataSet", "LabelledData", "data_sets_of", "load_test_data", "load_training_data"]


@dataclass(frozen=True)
class DataSet:
    """How to ``read`` a data set from a folder, given "train" or "test", and which networks it fits.

    ``kind`` is what `acf.zoo.networks.Network` calls ``reads``. ``shift_pixels`` is how far a training image may be
    shifted by augmentation, either way; where it is 0 images are not mirrored either.
    """

    read: Callable[[Path, str], LabelledData]
    kind: str
    has_test: bool = False
    needs_folder: bool = True
    shift_pixels: int = 0


DATA_SETS: dict[str, DataSet] = {
    "cifar10-jpeg": DataSet(read_cifar10, "image", has_test=True, shift_pixels=4),
    "fashion-mnist": DataSet(read_fashion_mnist, "image", has_test=True),
    "digits": DataSet(read_digits, "image", has_test=True, needs_folder=False),
    "cifar10": DataSet(read_cifar10_batches, "image", has_test=True, shift_pixels=4),
    "sentence-polarity": DataSet(read_sentence_classes, "sentence"),
    "word-occurrences": DataSet(read_word_occurrences, "pair"),
    "multi30k-en-de": DataSet(read_translation, "translation"),
}
"""Every data set by name; of each kind the first is the default."""


DAMAGED = (OSError, EOFError, LookupError, ValueError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What the readers of archives, images and numbers raise where a file is damaged or is something else."""


def data_sets_of(kind: str) -> tuple[str, ...]:
    """Names of the data sets for a network that reads ``kind``."""
    return tuple(name for name, data_set in DATA_SETS.items() if data_set.kind == kind)


def load_training_data(kind: str, folder: Path | None, name: str = "") -> LabelledData:
    """A data set for a network that reads ``kind``; without a ``name`` the first, without a ``folder`` the digits."""
    fitting = data_sets_of(kind)
    chosen = name or ("digits" if folder is None and kind == "image" else fitting[0])
    if chosen not in fitting:
        raise DataError(f"data set {chosen!r} does not fit a network that reads {kind}s; use {' or '.join(fitting)}")
    return _read(chosen, folder, "train")


def load_test_data(folder: Path | None, name: str) -> LabelledData:
    """The test part of a data set that has one."""
    return _read(name, folder, "test")


def _read(name: str, folder: Path | None, split: str) -> LabelledData:
    data_set = DATA_SETS[name]
    if folder is None and data_set.needs_folder:
        raise DataError(f"data set {name} needs a folder; name the folder that holds it with --data or $ACF_DATA")
    try:
        return data_set.read(folder or Path(), split)
    except AcfError:
        raise
    except (MemoryError, *DAMAGED) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"data set {name} cannot be read in {folder} ({reason}); name the folder that holds it, whole"
        ) from error
