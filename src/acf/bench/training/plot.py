"""The plot of a record: quality against seconds and joules of training, and the frontier of all variants."""

from collections.abc import Sequence
from html import escape
from math import isfinite

from acf.bench.training.record import TrainingComparison
from acf.bench.training.run import CurvePoint, mean_curve
from acf.bench.training.svg import Dot, Line, Panel, Span, document
from acf.bench.training.variant import Variant
from acf.errors import DataError
from acf.report.style import PALETTE, REFERENCE_COLOUR

WIDTH_PX, CURVES_PX, FRONTIER_PX, LEGEND_LINE_PX = 920, 330, 330, 20
LEGEND_PX, LEGEND_CHARACTERS = WIDTH_PX - 120, 110
"""Room for a line of the legend, and how many characters surely fit into it; longer names are squeezed."""
DASHES = ("", "7 4", "2 3")
Curve = Sequence[CurvePoint]
EARLY_SHARE = 0.2
"""The first part of every curve does not widen the axis of quality; it would flatten all that follows."""


def training_svg(comparison: TrainingComparison) -> str:
    """An SVG file: means over the seeds of each variant; a dotted line marks the final quality of the baseline.

    The frontier joins the dense variants, and the sparse ones; bars are sample deviations over seeds.
    """
    names = comparison.variants()
    if not names:
        raise DataError("the record holds no run, so there is nothing to draw; train first")
    curves = [mean_curve(comparison.runs_of(name)) for name in names]
    has_joules = all(point.joules is not None for curve in curves for point in curve)
    parts = _panel_of_curves(comparison, curves, "seconds", WIDTH_PX // 2 if has_joules else WIDTH_PX)
    if has_joules:
        parts += _panel_of_curves(comparison, curves, "joules", WIDTH_PX // 2)
    parts += _frontier(comparison, names)
    parts += _legend(comparison, names)
    height = CURVES_PX + FRONTIER_PX + LEGEND_LINE_PX * (len(names) + 2)
    return document(WIDTH_PX, height, parts)


def _panel_of_curves(comparison: TrainingComparison, curves: Sequence[Curve], across: str, width: int) -> list[str]:
    points = [
        [(getattr(point, across), point.quality) for point in curve if isfinite(point.quality)] for curve in curves
    ]
    late = [y for values in points for x, y in values if x > EARLY_SHARE * values[-1][0]]
    if not late:
        return []
    most = max(x for values in points for x, _ in values)
    left = 0 if across == "seconds" else WIDTH_PX - width
    titles = (f"{comparison.task.quality} by {across}", f"{across} of training", comparison.task.quality)
    panel = Panel(left, 0, width, CURVES_PX, titles, Span(0.0, 1.04 * most), Span.over(late))
    final = comparison.summaries()[0].quality
    lines = [Line(((0.0, final), (1.04 * most, final)), REFERENCE_COLOUR, DASHES[2])] if isfinite(final) else []
    for index, values in enumerate(points):
        colour, dash = _style(index)
        dots = (Dot(colour, ""),) if len(values) == 1 else ()  # one point makes no line
        lines.append(Line(tuple(values), colour, dash, dots))
    return panel.draw(lines)


def _frontier(comparison: TrainingComparison, names: Sequence[str]) -> list[str]:
    """Final quality against the time of a run; of a step, where all runs take the same time."""
    summaries = comparison.summaries()
    by_step = comparison.length.seconds > 0.0
    times = {each.variant: each.step_ms if by_step else each.seconds for each in summaries}
    quality = {each.variant: each.quality for each in summaries if isfinite(each.quality)}
    deviation = {each.variant: each.quality_deviation for each in summaries}
    shown = [name for name in names if name in quality]
    if not shown:
        return []
    budget = f", {comparison.length.seconds:g} s each" if by_step else ""
    titles = (
        f"final {comparison.task.quality}, all variants{budget}",
        "ms per step" if by_step else "seconds of training",
        comparison.task.quality,
    )
    ends = [quality[name] + sign * deviation[name] for name in shown for sign in (-1.0, 1.0)]
    spans = (Span.over([times[name] for name in shown], 0.1), Span.over(ends, 0.15))
    panel = Panel(0, CURVES_PX, WIDTH_PX, FRONTIER_PX, titles, *spans)
    lines = []
    for is_dense, dash in ((True, DASHES[0]), (False, DASHES[1])):
        members = [name for name in shown if Variant.parse(name).is_dense == is_dense]
        members.sort(key=lambda name: times[name])
        dots = tuple(
            Dot(_style(index)[0], str(index + 1), deviation[names[index]])
            for index in (names.index(name) for name in members)
        )
        lines.append(Line(tuple((times[name], quality[name]) for name in members), REFERENCE_COLOUR, dash, dots))
    return panel.draw([line for line in lines if line.points])


def _legend(comparison: TrainingComparison, names: Sequence[str]) -> list[str]:
    top = CURVES_PX + FRONTIER_PX + LEGEND_LINE_PX
    parts = []
    for index, name in enumerate(names):
        colour, dash = _style(index)
        y, runs = top + LEGEND_LINE_PX * index, len(comparison.runs_of(name))
        stroke = f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"'
        parts.append(f'<line x1="64" x2="104" y1="{y - 4}" y2="{y - 4}" {stroke}/>')
        seeds = "1 run" if runs == 1 else f"mean of {runs} runs"
        text = f"{index + 1}  {name}, {seeds}"
        squeezed = f' textLength="{LEGEND_PX}" lengthAdjust="spacingAndGlyphs"' if len(text) > LEGEND_CHARACTERS else ""
        parts.append(f'<text x="112" y="{y}"{squeezed}>{escape(text)}</text>')
    y = top + LEGEND_LINE_PX * len(names)
    lines = "dotted: final quality of 1; below, solid: dense variants, dashed: sparse ones"
    return [*parts, f'<text x="64" y="{y}">{escape(_where(comparison))}; {lines}</text>']


def _where(comparison: TrainingComparison) -> str:
    devices = dict.fromkeys(session.get("device", "unknown device") for session in comparison.sessions)
    return f"{comparison.task.name} on {', '.join(devices)}"


def _style(index: int) -> tuple[str, str]:
    """Colour and dash of the ``index``-th variant."""
    return PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)]
