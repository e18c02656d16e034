"""How busy clusters and links were over time: curves for the timeline, and a heat map as SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from acf.report.timeline.events import Event, EventClock
from acf.report.timeline.fabric_tracks import LINKS, SCUS, line_name
from acf.sim.fabric.spec import AdaptiveFabric
from acf.sim.recording import StepRecording
from acf.units import si

BINS = 240
"""Columns of the heat map, and points of the curves."""

LEVELS = 32
"""Shades of the heat map; neighbours of one shade are drawn as one rectangle."""

LOW, HIGH = (0x00, 0x22, 0x4E), (0xFE, 0xE8, 0x38)
"""The ends of the scale, dark blue and yellow, as those of the report's heat maps."""


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Shares in [0, 1] over `BINS` equal parts of the step: ``clusters [bins, clusters]`` and ``links [bins, lines]``.

    A cluster's share counts cycles of its SCUs with work; a link's, cycles in which it carries a flit.
    """

    bin_cycles: float
    clusters: NDArray[np.float64]
    links: NDArray[np.float64]


def occupancy_of(recording: StepRecording, spec: AdaptiveFabric) -> Occupancy:
    """The occupancy of the whole step; between products it is 0."""
    bin_cycles = max(1, recording.result.step_cycles) / BINS
    clusters = np.zeros((BINS, spec.clusters))
    links = np.zeros((BINS, spec.mesh_rows + spec.mesh_columns))
    for op, start in zip(recording.ops, recording.op_starts, strict=True):
        for product in op.products:
            played = product.recording
            for place in range(len(played.busy)):
                first = start + product.first_cycle + place * played.bin_cycles
                length = min(played.bin_cycles, max(1, played.cycles - place * played.bin_cycles))
                weights = _overlaps(first / bin_cycles, (first + length) / bin_cycles)
                for number, weight in weights:
                    clusters[number] += weight * played.busy[place]
                    links[number] += weight * played.carried[place]
    return Occupancy(bin_cycles, clusters / (bin_cycles * spec.scus_per_cluster), links / bin_cycles)


def _overlaps(start: float, end: float) -> Iterator[tuple[int, float]]:
    """The bins that an interval, in bins, lies in, and the share of it in each."""
    length = end - start
    for number in range(min(int(start), BINS - 1), BINS):
        inside = min(end, number + 1) - max(start, number)
        if inside <= 0:
            return
        yield number, inside / length


def curve_events(occupancy: Occupancy, clock: EventClock) -> Iterator[Event]:
    """Means over all clusters and all links, as counters."""
    for place in range(BINS):
        cycle = place * occupancy.bin_cycles
        yield clock.counter(SCUS, "SCUs at work (%)", cycle, 100 * float(occupancy.clusters[place].mean()))
        yield clock.counter(LINKS, "DIN links busy (%)", cycle, 100 * float(occupancy.links[place].mean()))


def occupancy_svg(recording: StepRecording, spec: AdaptiveFabric) -> str:
    """Two panels over time: clusters, and the first link of every mesh row and column."""
    result, occupancy = recording.result, occupancy_of(recording, spec)
    clusters = [
        f"row {index // spec.mesh_columns}, column {index % spec.mesh_columns}" for index in range(spec.clusters)
    ]
    lines = [line_name(spec, line) for line in range(spec.mesh_rows + spec.mesh_columns)]
    title = f"{result.workload or 'step'} on {result.architecture}"
    upper = _panel("Clusters: SCU cycles with work", occupancy.clusters.T, clusters, top=44)
    lower = _panel("DIN links: cycles with a flit", occupancy.links.T, lines, top=44 + upper.height + 36)
    height = 44 + upper.height + 36 + lower.height + 60
    length = si(result.step_seconds, "s")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}: occupancy over time" font-family="sans-serif" font-size="12" '
        'shape-rendering="crispEdges">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" font-weight="600">{escape(title)}</text>',
        *upper.elements,
        *lower.elements,
        *_scale(height - 34, f"0 to {length}, in {BINS} parts"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


WIDTH, LEFT, CELL = 1100, 130, 4
"""Pixels: the drawing, the labels at its left, and one part of the time."""


@dataclass(frozen=True)
class _Panel:
    elements: list[str]
    height: int


def _panel(heading: str, shares: NDArray[np.float64], names: Sequence[str], top: int) -> _Panel:
    """``shares [rows, bins]``; at most 32 rows are labelled."""
    row_px = 8 if len(names) > 32 else 14
    every = -(-len(names) // 32)
    elements = [f'<text x="{LEFT}" y="{top + 12}" font-weight="600">{escape(heading)}</text>']
    for place, (name, row) in enumerate(zip(names, shares, strict=True)):
        y = top + 20 + place * row_px
        if place % every == 0:
            elements.append(f'<text x="{LEFT - 6}" y="{y + row_px}" font-size="10" text-anchor="end">{name}</text>')
        levels = np.rint(np.clip(row, 0, 1) * (LEVELS - 1)).astype(int)
        changes = np.flatnonzero(np.diff(levels)) + 1
        for first, last in zip((0, *changes), (*changes, len(levels)), strict=True):
            x, width = LEFT + CELL * first, CELL * (last - first)
            share = f"<title>{name}: {100 * float(row[first:last].mean()):.0f} %</title>"
            fill = _colour(levels[first] / (LEVELS - 1))
            elements.append(f'<rect x="{x}" y="{y}" width="{width}" height="{row_px}" fill="{fill}">{share}</rect>')
    return _Panel(elements, 20 + row_px * len(names))


def _scale(top: int, label: str) -> Iterator[str]:
    for step in range(11):
        yield f'<rect x="{LEFT + 20 * step}" y="{top}" width="20" height="10" fill="{_colour(step / 10)}"/>'
    yield f'<text x="{LEFT}" y="{top + 24}">0 %</text><text x="{LEFT + 200}" y="{top + 24}">100 %</text>'
    yield f'<text x="{LEFT + 960}" y="{top + 10}" text-anchor="end">{escape(label)}</text>'


def _colour(share: float) -> str:
    red, green, blue = (round(low + (high - low) * share) for low, high in zip(LOW, HIGH, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"
