"""Masks over time: a small picture of the blocks of each layer at several steps of a run."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.metrics import MaskSnapshot, TrainingRecord
from acf.report.compare import in_order, percent

MOST_LAYERS, MOST_STEPS = 8, 6
PICTURE_PX = 128
ABSENT, PRESENT, REGROWN = range(3)
_COLOURS = bytes.fromhex("d9dde31a80c4d55e00")
"""Red, green and blue of an absent block, a present one, and one that was absent in the picture before."""


@dataclass(frozen=True)
class MaskPicture:
    """One picture, as a data URI, and what it shows in words."""

    uri: str
    caption: str
    spoken: str
    rows: int
    columns: int

    @property
    def width_px(self) -> int:
        """Width on the page: the longer side is about `PICTURE_PX`, in whole pixels for each block."""
        return self.columns * self._block_px

    @property
    def height_px(self) -> int:
        """Height on the page."""
        return self.rows * self._block_px

    @property
    def _block_px(self) -> int:
        return max(1, PICTURE_PX // max(self.rows, self.columns))


@dataclass(frozen=True)
class MaskRow:
    """The pictures of one layer, oldest first."""

    layer: str
    pictures: tuple[MaskPicture, ...]


@dataclass(frozen=True)
class MaskSection:
    """The pictures of one run, and which layers are not shown."""

    label: str
    rows: tuple[MaskRow, ...]
    left_out: int


def mask_sections(training: Sequence[TrainingRecord]) -> list[MaskSection]:
    """The pictures of every run that has masks: the layers with most blocks, at steps spread over the run."""
    return [_section(record) for record in training if record.masks]


def _section(record: TrainingRecord) -> MaskSection:
    by_layer = {
        layer: sorted((mask for mask in record.masks if mask.layer == layer), key=lambda mask: mask.step)
        for layer in in_order(mask.layer for mask in record.masks)
    }
    largest = sorted(by_layer, key=lambda layer: -by_layer[layer][0].rows * by_layer[layer][0].columns)[:MOST_LAYERS]
    shown = [layer for layer in by_layer if layer in largest]
    return MaskSection(
        record.label,
        tuple(MaskRow(layer, tuple(_pictures(_spread(by_layer[layer])))) for layer in shown),
        len(by_layer) - len(shown),
    )


def _spread(masks: Sequence[MaskSnapshot]) -> list[MaskSnapshot]:
    """At most `MOST_STEPS` of them, the first and the last included."""
    places = np.linspace(0, len(masks) - 1, min(MOST_STEPS, len(masks))).round().astype(int)
    return [masks[place] for place in dict.fromkeys(places.tolist())]


def _pictures(masks: Sequence[MaskSnapshot]) -> list[MaskPicture]:
    pictures = []
    before = masks[0].present
    for mask in masks:
        present = mask.present
        kinds = np.where(present, PRESENT, ABSENT).astype(np.uint8)
        regrown = present & ~before if present.shape == before.shape else np.zeros_like(present)
        kinds[regrown] = REGROWN
        caption = f"step {mask.step:,}"
        spoken = (
            f"{mask.layer} after step {mask.step:,}: {percent(present.mean())} of {mask.rows} x {mask.columns} blocks "
            f"present, {int(regrown.sum()):,} of them absent in the picture before"
        )
        pictures.append(MaskPicture(png_uri(kinds), caption, spoken, mask.rows, mask.columns))
        before = present
    return pictures


def png_uri(kinds: NDArray[np.uint8]) -> str:
    """A picture with one pixel for each block, coloured by its kind, as a data URI."""
    height, width = kinds.shape
    lines = np.concatenate(
        [np.zeros((height, 1), np.uint8), kinds], axis=1
    )  # each line starts with its filter, 0: none
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits per pixel, colours from a palette
    chunks = [(b"IHDR", header), (b"PLTE", _COLOURS), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
