"""Loss curves of all systems: mean over seeds of the training loss, smoothed, against steps."""

from collections.abc import Sequence
from html import escape
from math import isfinite
from statistics import mean

from acf.bench.evaluation.run import SystemRun
from acf.bench.training.svg import Line, Panel, Span, document
from acf.report.style import PALETTE

WIDTH_PX, PANEL_PX, LEGEND_LINE_PX = 920, 400, 20
DASHES = ("", "7 4", "2 3")
EARLY_SHARE = 0.05
"""The first losses do not widen the axis, or they would flatten all that follows."""

Points = tuple[tuple[float, float], ...]


def loss_curves(runs: Sequence[SystemRun]) -> dict[str, Points]:
    """Step and mean loss over seeds, by system; systems of which no loss was kept, or none is finite, are left out."""
    systems = dict.fromkeys(run.system for run in runs)
    curves = {system: _curve([run for run in runs if run.system == system]) for system in systems}
    return {system: curve for system, curve in curves.items() if curve}


def _curve(runs: Sequence[SystemRun]) -> Points:
    known = [{point.step: point.loss for point in run.losses} for run in runs]
    steps = sorted(set.intersection(*(set(each) for each in known)))
    points = [(float(step), mean(each[step] for each in known)) for step in steps]
    return tuple(point for point in points if isfinite(point[1]))


def loss_svg(title: str, runs: Sequence[SystemRun]) -> str | None:
    """An SVG file; None where no run kept losses."""
    curves = loss_curves(runs)
    if not curves:
        return None
    last = max(points[-1][0] for points in curves.values())
    late = [loss for points in curves.values() for step, loss in points if step >= EARLY_SHARE * last]
    titles = (f"{title}: training loss", "step", "loss")
    panel = Panel(0, 0, WIDTH_PX, PANEL_PX, titles, Span(0.0, last), Span.over(late))
    styles = [(PALETTE[at % len(PALETTE)], DASHES[at // len(PALETTE) % len(DASHES)]) for at in range(len(curves))]
    lines = [Line(points, *style) for points, style in zip(curves.values(), styles, strict=True)]
    parts = panel.draw(lines)
    for at, (system, (colour, dash)) in enumerate(zip(curves, styles, strict=True)):
        y = PANEL_PX + LEGEND_LINE_PX * (at + 1)
        stroke = f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"'
        parts.append(f'<line x1="64" x2="104" y1="{y - 4}" y2="{y - 4}" {stroke}/>')
        seeds = sum(run.system == system for run in runs)
        parts.append(
            f'<text x="112" y="{y}">{escape(system)}, {"1 run" if seeds == 1 else f"mean of {seeds} runs"}</text>'
        )
    return document(WIDTH_PX, PANEL_PX + LEGEND_LINE_PX * (len(curves) + 1), parts)
