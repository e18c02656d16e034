"""Folders of data sets in their public layouts, with files that are damaged, hostile or missing."""

import gzip
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image

from acf.zoo.data import load_test_data, load_training_data
from acf.zoo.data.image_folder import FolderImages
from acf.zoo.data.images import DeviceImages, load_images
from acf.zoo.data.parallel_text import load_parallel_text
from acf.zoo.data.subwords import train_codec
from acf.zoo.data.text import TokenBatches, load_tokens
from tests.fuzz.doors.checkpoints import Payload
from tests.fuzz.values import damaged

Files = dict[str, bytes]
"""Contents by the path in the folder."""


def _jpeg(seed: int, side: int = 32, suffix: str = "JPEG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, suffix)
    return content.getvalue()


@cache
def _cifar_jpeg() -> Files:
    scans = [_jpeg(number) for number in range(6)]
    offsets = np.cumsum([0, *map(len, scans)])
    content = io.BytesIO()
    parts = {"jpeg_header": np.zeros(0, np.uint8)}
    for split in ("train", "test"):
        parts[f"{split}_scans"] = np.frombuffer(b"".join(scans), np.uint8)
        parts |= {f"{split}_offsets": offsets, f"{split}_labels": np.arange(6)}
    np.savez(content, **parts)
    return {"cifar10-jpeg/cifar10_jpeg.npz": content.getvalue()}


@cache
def _cifar_binary() -> Files:
    rows = np.random.default_rng(0).integers(0, 10, (4, 3073), dtype=np.uint8).tobytes()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return {f"cifar-10-batches-bin/{name}.bin": rows for name in names}


@cache
def _cifar_pickled() -> Files:
    pixels = np.random.default_rng(0).integers(0, 255, (4, 3072), dtype=np.uint8)
    content = pickle.dumps({b"data": pixels, b"labels": [1, 2, 3, 4]}, protocol=2)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return {f"cifar-10-batches-py/{name}": content for name in names}


@cache
def _fashion() -> Files:
    pixels, labels = bytes(range(256)) * 49, bytes(range(4)) * 4
    images = struct.pack(">IIII", 0x803, 16, 28, 28) + pixels[: 16 * 784]
    files = {}
    for prefix in ("train", "t10k"):
        files[f"fashion-mnist/{prefix}-images-idx3-ubyte.gz"] = gzip.compress(images)
        files[f"fashion-mnist/{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(struct.pack(">II", 0x801, 16) + labels)
    return files


@cache
def _sentences() -> Files:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for kind in ("neg", "pos"):
            archive.writestr(f"sentence_polarity/rt-polarity.{kind}", "a fine film\nno film at all\n" * 20)
    return {"sentence-polarity/sentence_polarity.zip": content.getvalue()}


@cache
def _multi30k() -> Files:
    text = gzip.compress(b"a man walks .\nein mann geht .\n" * 60)
    parts = ("train", "val", "test_2016_flickr")
    return {f"multi30k-en-de/{part}.{language}.gz": text for part in parts for language in ("en", "de")}


@cache
def _lines() -> Files:
    text = b"a man walks .\nanother one sits .\n" * 30
    return {f"{part}.{language}": text for part in ("train", "valid", "test") for language in ("en", "de")}


@cache
def _tatoeba() -> Files:
    rows = "".join(f"{n}\t{n}\tSatz {n}.\tSentence {n}.\n" for n in range(200))
    return {"tatoeba-de-en/pairs.txt.gz": gzip.compress(rows.encode())}


@cache
def _image_folder() -> Files:
    kinds = (("png", "PNG"), ("jpeg", "JPEG"), ("webp", "WEBP"))
    return {
        f"{part}/{name}/{number}.{suffix}": _jpeg(number, 40, kind)
        for part in ("train", "val")
        for name in ("cat", "dog")
        for number, (suffix, kind) in enumerate(kinds)
    }


@cache
def _corpus() -> Files:
    import lzma

    return {"corpus.txt.xz": lzma.compress(b"\n\0\n".join(b"one document of words %d" % n * 20 for n in range(20)))}


def _read_images(name: str, folder: Path) -> None:
    DeviceImages(load_images(name, folder), torch.device("cpu")).test_batch(slice(0, 2))
    load_training_data("image", folder, name).batch(torch.tensor([0, 1]), 8, "cpu")
    load_test_data(folder, name)


def _read_folder(folder: Path) -> None:
    images = FolderImages(folder, 16, torch.device("cpu"), threads=1)
    images.train_batch(torch.arange(len(images)), torch.Generator().manual_seed(0))
    images.test_batch(slice(0, 6))


def _read_text(name: str, folder: Path) -> None:
    train_codec(load_parallel_text(name, folder), 300)


def _read_corpus(folder: Path) -> None:
    tokens = load_tokens(folder / "corpus.txt.xz", 300, folder / "cache")
    TokenBatches(tokens.train, 8, torch.device("cpu")).draw(2, torch.Generator().manual_seed(0))


SETS: dict[str, tuple[Callable[[], Files], Callable[[Path], object]]] = {
    "cifar10-jpeg": (_cifar_jpeg, lambda folder: _read_images("cifar10-jpeg", folder)),
    "cifar10-bin": (_cifar_binary, lambda folder: _read_images("cifar10", folder)),
    "cifar10-py": (_cifar_pickled, lambda folder: _read_images("cifar10", folder)),
    "fashion-mnist": (_fashion, lambda folder: _read_images("fashion-mnist", folder)),
    "sentences": (_sentences, lambda folder: load_training_data("sentence", folder)),
    "pairs": (_sentences, lambda folder: load_training_data("pair", folder)),
    "windows": (_multi30k, lambda folder: load_training_data("translation", folder)),
    "multi30k": (_multi30k, lambda folder: _read_text("multi30k", folder)),
    "lines": (_lines, lambda folder: _read_text("lines", folder)),
    "tatoeba": (_tatoeba, lambda folder: _read_text("tatoeba", folder)),
    "image folder": (_image_folder, _read_folder),
    "corpus": (_corpus, _read_corpus),
}
"""Every layout: the files of a small whole set, and what reads them."""


def data_folder(rng: Random, folder: Path) -> None:
    """A data set of which one file is damaged, hostile, of another set, a folder, or not there."""
    import shutil

    name = rng.choice(sorted(SETS))
    make, read = SETS[name]
    place = folder / "data"
    shutil.rmtree(place, ignore_errors=True)
    files = dict(make())
    if rng.random() < 0.97:
        spoilt = rng.choice(sorted(files))
        files[spoilt] = _spoilt(rng, files[spoilt])
    for path, content in files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if content == b"folder":
            target.mkdir()
        elif content != b"missing":
            target.write_bytes(content)
    read(place)


def _spoilt(rng: Random, content: bytes) -> bytes:
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: damaged(rng, content),
        lambda: damaged(rng, content),
        lambda: damaged(rng, damaged(rng, content)),
        lambda: _inside(rng, content),
        lambda: b"",
        lambda: b"missing",
        lambda: b"folder",
        lambda: pickle.dumps(Payload(), protocol=2),
        lambda: pickle.dumps({b"data": Payload(), b"labels": [1]}, protocol=2),
        lambda: gzip.compress(bytes(1 << 20)),
        lambda: rng.randbytes(500),
        lambda: b"\xff\xfe" + content,
        lambda: _huge_array(),
        lambda: _object_array(),
    )
    return rng.choice(changes)()


def _inside(rng: Random, content: bytes) -> bytes:
    """Damage behind the compression, whose checksum is right."""
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(damaged(rng, gzip.decompress(content)))
    return damaged(rng, content)


def _huge_array() -> bytes:
    """A CIFAR-10 pickle that asks for an array of 4 TB."""
    return pickle.dumps({b"data": _Huge(), b"labels": [1]}, protocol=2)


class _Huge:
    def __reduce__(self) -> tuple[object, ...]:
        return np.ndarray, ((1 << 42,), "u1")


def _object_array() -> bytes:
    """An archive whose array holds objects, which only unpickling could read."""
    content = io.BytesIO()
    np.savez(content, train_scans=np.array([Payload()], dtype=object), allow_pickle=True)
    return content.getvalue()
