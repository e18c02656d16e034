"""Pictures of masks."""

import zlib
from base64 import b64decode
from dataclasses import replace

import numpy as np

from acf.metrics import MaskSnapshot
from acf.report.masks import ABSENT, MOST_LAYERS, MOST_STEPS, PRESENT, REGROWN, mask_sections, png_uri


def pixels(uri: str, width: int) -> np.ndarray:
    """The pixels of a PNG that `png_uri` wrote."""
    picture = b64decode(uri.partition(",")[2])
    start = picture.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompressobj().decompress(picture[start:]), dtype=np.uint8)
    return lines.reshape(-1, width + 1)[:, 1:]


def test_a_picture_has_a_pixel_of_its_kind_for_each_block():
    kinds = np.array([[ABSENT, PRESENT, REGROWN], [PRESENT, ABSENT, ABSENT]], dtype=np.uint8)
    assert (pixels(png_uri(kinds), 3) == kinds).all()


def test_blocks_that_were_absent_in_the_picture_before_are_marked(training):
    masks = tuple(MaskSnapshot.of(step, "fc", mask) for step, mask in ((5, [[1, 0]]), (9, [[0, 1]])))
    (section,) = mask_sections([replace(training[0], masks=masks), training[1]])
    first, second = section.rows[0].pictures
    assert pixels(first.uri, 2).tolist() == [[PRESENT, ABSENT]]
    assert pixels(second.uri, 2).tolist() == [[ABSENT, REGROWN]]


def test_long_runs_of_deep_networks_show_a_bounded_number_of_pictures(training):
    masks = tuple(MaskSnapshot.of(step, f"fc{i}", np.ones((i + 1, 2))) for i in range(12) for step in range(40))
    (section,) = mask_sections([replace(training[0], masks=masks)])
    assert [row.layer for row in section.rows] == [f"fc{i}" for i in range(12 - MOST_LAYERS, 12)]
    assert section.left_out == 12 - MOST_LAYERS
    assert [picture.caption for picture in section.rows[0].pictures][:: MOST_STEPS - 1] == ["step 0", "step 39"]
