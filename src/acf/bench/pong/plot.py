"""The plot of a record: score against seconds, and against frames."""

from collections.abc import Callable, Sequence
from html import escape

from acf.bench.pong.record import TARGET_SCORE, ScorePoint
from acf.bench.training.svg import Dot, Line, Panel, Span, document
from acf.report.style import PALETTE, REFERENCE_COLOUR

WIDTH_PX, HEIGHT_PX, LEGEND_LINE_PX = 920, 330, 20
SCORES = Span(-22.0, 22.0)
"""A game of Pong ends with 21 points on one side."""

Across = Callable[[ScorePoint], float]


def pong_svg(points: Sequence[ScorePoint]) -> str:
    """An SVG file with one line for each run, a colour for each variant; dotted: the target score.

    Points before the hundredth episode have no score and are not drawn.
    """
    variants = list(dict.fromkeys(point.variant for point in points))
    by_time = ("score by time", "seconds of playing and learning", "mean of the last 100 episodes")
    by_frames = ("score by frames", "million frames", "mean of the last 100 episodes")
    parts = _panel(points, 0, by_time, lambda point: point.seconds)
    parts += _panel(points, WIDTH_PX // 2, by_frames, lambda point: 1e-6 * point.frames)
    for index, name in enumerate(variants):
        y = HEIGHT_PX + LEGEND_LINE_PX * (index + 1)
        parts.append(f'<line x1="64" x2="104" y1="{y - 4}" y2="{y - 4}" stroke="{_colour(index)}" stroke-width="3"/>')
        parts.append(f'<text x="112" y="{y}">{escape(name)}</text>')
    return document(WIDTH_PX, HEIGHT_PX + LEGEND_LINE_PX * (len(variants) + 1), parts)


def _panel(points: Sequence[ScorePoint], left: int, titles: tuple[str, str, str], across: Across) -> list[str]:
    variants = list(dict.fromkeys(point.variant for point in points))
    most = 1.04 * max((across(point) for point in points), default=1.0)
    panel = Panel(left, 0, WIDTH_PX // 2, HEIGHT_PX, titles, Span(0.0, most), SCORES)
    lines = [Line(((0.0, TARGET_SCORE), (most, TARGET_SCORE)), REFERENCE_COLOUR, "2 3")]
    for variant, seed in dict.fromkeys((point.variant, point.seed) for point in points):
        curve = tuple(
            (across(point), point.score)
            for point in points
            if (point.variant, point.seed) == (variant, seed) and point.score is not None
        )
        if curve:
            colour = _colour(variants.index(variant))
            lines.append(Line(curve, colour, dots=(Dot(colour, ""),) if len(curve) == 1 else ()))
    return panel.draw(lines)


def _colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]
