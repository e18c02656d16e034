"""Figures with a point for each operation or each machine: the roofline, and time against energy and area."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from acf.report.compare import in_order, phase_name, written_si
from acf.report.labels import Label, placed_labels
from acf.report.style import PALETTE, REFERENCE_COLOUR, apply_layout, hover_template, hover_text, plot_text
from acf.sim.result import Result

POINTS_HEIGHT_PX = 460
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")
DECADES: dict[str, Any] = {"type": "log", "exponentformat": "SI", "minexponent": 1}
"""Logarithmic axis with SI prefixes."""
NAMES_SHARE = 0.4
"""Room for names at the sides of time against energy, as a share of the span of times."""
SMALLEST_MARKER_PX, LARGEST_MARKER_PX = 9, 34


def roofline_figure(results: Sequence[Result]) -> go.Figure:
    """Every operation: useful MACs per DRAM byte against useful MACs per second, below the roof of its machine."""
    architectures, workloads = (
        in_order(names) for names in zip(*((each.architecture, each.workload) for each in results), strict=True)
    )
    figure = go.Figure()
    for result in results:
        index = architectures.index(result.architecture)
        symbol = SYMBOLS[workloads.index(result.workload) % len(SYMBOLS)]
        figure.add_trace(_operations(result, PALETTE[index % len(PALETTE)], symbol))
    intensities = [x for trace in figure.data for x in trace.x]
    if intensities:
        for bounds, names in _machines_by_roof(results).items():
            figure.add_trace(_roof(bounds, names, (min(intensities), max(intensities))))
    rates = [y for trace in figure.data for y in trace.y]
    figure.update_xaxes(title={"text": "effectual MACs per DRAM byte"}, **_decades(intensities))
    figure.update_yaxes(title={"text": "effectual MACs per second"}, **_decades(rates))
    return apply_layout(figure, height_px=POINTS_HEIGHT_PX, showlegend=True)


def _operations(result: Result, colour: str, symbol: str) -> go.Scatter:
    played = [op for op in result.ops if op.cycles and op.effectual_macs and op.dram_bytes]
    name = f"{result.architecture}, {result.workload}"
    return go.Scatter(
        x=[_rounded(op.effectual_macs / op.dram_bytes) for op in played],
        y=[_rounded(op.effectual_macs * result.clock_hz / op.cycles) for op in played],
        mode="markers",
        name=plot_text(name, limit=40),
        marker={"color": colour, "symbol": symbol, "size": 8, "opacity": 0.75},
        hovertext=[plot_text(f"{op.name}, {phase_name(op.phase)}", limit=64) for op in played],
        hovertemplate=hover_template("%{hovertext}", "%{x:.3~s} MAC per byte, %{y:.3~s} MAC per second", name),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _machines_by_roof(results: Sequence[Result]) -> dict[tuple[float, float | None], list[str]]:
    """Names of the machines by peak MACs per second and DRAM bytes per second."""
    names: dict[tuple[float, float | None], list[str]] = {}
    for result in results:
        names.setdefault((result.peak_macs_per_s, result.dram_bytes_per_s), []).append(result.architecture)
    return names


def _roof(bounds: tuple[float, float | None], names: Sequence[str], span: tuple[float, float]) -> go.Scatter:
    """The bound of these machines: DRAM's rate times the intensity, up to the peak of the MACs."""
    peak, rate = bounds
    ridge = peak / rate if rate else span[0]
    places = sorted({min(span[0], ridge / 4), ridge, max(span[1], ridge)})
    return go.Scatter(
        x=places,
        y=[min(peak, rate * place) if rate else peak for place in places],
        mode="lines",
        name=plot_text(f"roof of {', '.join(in_order(names))}", limit=40),
        line={"color": REFERENCE_COLOUR, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )


def pareto_figure(results: Sequence[Result]) -> go.Figure:
    """Time against energy of whole steps, areas as sizes; a ring marks what another machine beats in all three."""
    played = [result for result in results if result.step_cycles and result.energy_j]
    largest = max((result.total_area_mm2 or 0.0 for result in played), default=0.0)
    figure = go.Figure()
    labels = _labels(played)
    for index, workload in enumerate(in_order(result.workload for result in played)):
        rivals = [result for result in played if result.workload == workload]
        best = [not any(_beats(other, result) for other in rivals) for result in rivals]
        marks = _Marks(best, [labels[id(result)] for result in rivals], largest)
        figure.add_trace(_machines(rivals, marks, PALETTE[index % len(PALETTE)]))
        front = sorted(
            (result for result, is_best in zip(rivals, best, strict=True) if is_best), key=lambda r: r.step_seconds
        )
        if len(front) > 1:
            line = {"color": PALETTE[index % len(PALETTE)], "width": 1, "dash": "dot"}
            figure.add_trace(_front(front, line))
    time, energy = (axis_values(played, name) for name in ("step_seconds", "energy_j"))
    across = _padded(time, NAMES_SHARE)
    figure.update_xaxes(title={"text": "time per step"}, range=across, ticksuffix="s", **_decades(time))
    figure.update_yaxes(title={"text": "energy per step"}, range=_padded(energy), ticksuffix="J", **_decades(energy))
    return apply_layout(figure, height_px=POINTS_HEIGHT_PX, showlegend=True)


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis: 1, 2 and 5 of each decade, or powers of ten where the values span more than two decades."""
    wide = bool(values) and max(values) > 100 * min(values)
    return DECADES | {"dtick": 1 if wide else "D2"}


def _labels(results: Sequence[Result]) -> dict[int, Label]:
    """The name of every machine where it overlaps no other on a narrow page, by the identity of its result."""
    if not results:
        return {}
    across = _padded(axis_values(results, "step_seconds"), NAMES_SHARE) or [0.0, 1.0]
    up = _padded(axis_values(results, "energy_j")) or [0.0, 1.0]
    points = [
        (_share(result.step_seconds, across), _share(result.energy_j, up), plot_text(result.architecture, limit=20))
        for result in results
    ]
    return dict(zip(map(id, results), placed_labels(points), strict=True))


def _share(value: float, span: Sequence[float]) -> float:
    """Where a value lies on a logarithmic axis, 0 to 1."""
    return (math.log10(value) - span[0]) / (span[1] - span[0])


def axis_values(results: Sequence[Result], name: str) -> list[float]:
    """One figure of every result."""
    return [getattr(result, name) for result in results]


def _padded(values: Sequence[float], share: float = 0.25) -> list[float] | None:
    """A logarithmic range with room for markers and labels: ``share`` of it at either end."""
    if not values:
        return None
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(share * (high - low), 0.2)
    return [low - room, high + room]


def _beats(other: Result, result: Result) -> bool:
    """Whether ``other`` is nowhere worse than ``result`` and somewhere better, in time, energy and known area."""
    pairs = [(other.step_seconds, result.step_seconds), (other.energy_j, result.energy_j)]
    if other.total_area_mm2 is not None and result.total_area_mm2 is not None:
        pairs.append((other.total_area_mm2, result.total_area_mm2))
    return all(theirs <= own for theirs, own in pairs) and any(theirs < own for theirs, own in pairs)


@dataclass(frozen=True)
class _Marks:
    """How machines are drawn: whether each is on the front, its label, and the area of the largest of all."""

    best: Sequence[bool]
    labels: Sequence[Label]
    largest_mm2: float


def _machines(results: Sequence[Result], marks: _Marks, colour: str) -> go.Scatter:
    largest = marks.largest_mm2
    sizes = [
        max(SMALLEST_MARKER_PX, LARGEST_MARKER_PX * math.sqrt((result.total_area_mm2 or 0.0) / largest))
        if largest
        else SMALLEST_MARKER_PX
        for result in results
    ]
    symbols = ["circle" if is_best else "circle-open" for is_best in marks.best]
    return go.Scatter(
        x=axis_values(results, "step_seconds"),
        y=axis_values(results, "energy_j"),
        mode="markers+text",
        text=[label.text for label in marks.labels],
        textposition=[label.place for label in marks.labels],
        cliponaxis=False,
        name=plot_text(results[0].workload, limit=40),
        marker={"color": colour, "size": sizes, "symbol": symbols, "opacity": 0.85},
        hovertext=[_machine_hover(result, is_best) for result, is_best in zip(results, marks.best, strict=True)],
        hoverinfo="text",
    )


def _machine_hover(result: Result, is_best: bool) -> str:
    area = f"{result.total_area_mm2:.3g} mm² at {result.technology_nm} nm" if result.total_area_mm2 else "area unknown"
    return hover_text(
        f"{result.architecture} on {result.workload}",
        f"{written_si(result.step_seconds, 's')}, {written_si(result.energy_j, 'J')}, {area}",
        "on the Pareto front" if is_best else "another machine is better in time, energy and area",
    )


def _front(front: Sequence[Result], line: dict[str, Any]) -> go.Scatter:
    return go.Scatter(
        x=axis_values(front, "step_seconds"),
        y=axis_values(front, "energy_j"),
        mode="lines",
        line=line,
        hoverinfo="skip",
        showlegend=False,
    )
