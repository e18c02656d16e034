"""CIFAR-10 as JPEG scans that share a header."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from acf.zoo.data.cifar10 import read_cifar10
from tests.zoo.data.jpeg_set import COUNTS, pixels_of, write_jpeg_set


@pytest.mark.parametrize("split", COUNTS)
def test_every_scan_is_decoded_behind_the_header_they_share(split: str, tmp_path: Path) -> None:
    write_jpeg_set(tmp_path)
    data = read_cifar10(tmp_path, split)
    assert data.inputs.shape == (COUNTS[split], 3, 32, 32)
    assert data.labels.tolist() == list(range(COUNTS[split]))
    difference = data.inputs.permute(0, 2, 3, 1).numpy().astype(int) - pixels_of(split).astype(int)
    assert np.abs(difference).max() <= 4, "plain colours lose little at this quality"
