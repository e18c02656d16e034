"""CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 colour images of 32 x 32 in ten classes, each stored as a JPEG scan."""

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from acf.extras import import_optional
from acf.zoo.data.labelled_data import LabelledData


def read_cifar10(folder: Path, split: str) -> LabelledData:
    """Read ``cifar10-jpeg/cifar10_jpeg.npz`` in ``folder``; all images share one JPEG header."""
    image = import_optional("PIL.Image", needed_by="cifar10-jpeg")
    with np.load(folder / "cifar10-jpeg" / "cifar10_jpeg.npz") as stored:
        header, scans = stored["jpeg_header"].tobytes(), stored[f"{split}_scans"].tobytes()
        offsets, labels = stored[f"{split}_offsets"], stored[f"{split}_labels"]
    pixels = np.stack(
        [np.asarray(image.open(io.BytesIO(header + scans[start:end]))) for start, end in pairwise(offsets)]
    )
    images = torch.tensor(pixels).permute(0, 3, 1, 2)
    return LabelledData("CIFAR-10 (JPEG quality 80, 4:4:4)", images, torch.tensor(labels, dtype=torch.int64))
