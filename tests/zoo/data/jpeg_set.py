"""A small CIFAR-10 as JPEG scans behind one header."""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

COUNTS = {"train": 6, "test": 2}


def pixels_of(split: str) -> NDArray[np.uint8]:
    """Images ``[n, 32, 32, 3]`` of one colour each."""
    colours = np.random.default_rng(len(split)).integers(0, 256, (COUNTS[split], 1, 1, 3), dtype=np.uint8)
    return np.broadcast_to(colours, (COUNTS[split], 32, 32, 3)).copy()


def encoded(pixels: NDArray[np.uint8]) -> tuple[bytes, bytes]:
    """Header and scan of one image; the header is the same for all."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=80, subsampling=0)
    start = file.getvalue().index(b"\xff\xda")
    return file.getvalue()[:start], file.getvalue()[start:]


def write_jpeg_set(folder: Path) -> None:
    """``cifar10-jpeg/cifar10_jpeg.npz`` in ``folder``; labels count up."""
    stored: dict[str, NDArray[np.generic]] = {}
    for split, count in COUNTS.items():
        parts = [encoded(image) for image in pixels_of(split)]
        ends = np.cumsum([0, *(len(scan) for _, scan in parts)])
        stored |= {
            "jpeg_header": np.frombuffer(parts[0][0], np.uint8),
            f"{split}_scans": np.frombuffer(b"".join(scan for _, scan in parts), np.uint8),
            f"{split}_offsets": ends,
            f"{split}_labels": np.arange(count),
        }
    (folder / "cifar10-jpeg").mkdir()
    np.savez(folder / "cifar10-jpeg" / "cifar10_jpeg.npz", **stored)
