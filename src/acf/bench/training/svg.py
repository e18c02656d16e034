"""Line charts as SVG text: panels with axes, lines and points, on white, in the house's colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

INK, RULE = "#333333", "#d9d9d9"
LEFT_PX, RIGHT_PX, TOP_PX, BOTTOM_PX = 64, 16, 30, 44


@dataclass(frozen=True)
class Span:
    """The values between the two ends of an axis."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float], margin: float = 0.06) -> "Span":
        """All of ``values`` with some room at both ends."""
        low, high = min(values), max(values)
        room = margin * (high - low) or 0.1 * abs(high) or 1.0
        return cls(low - room, high + room)

    def ticks(self) -> list[float]:
        """Round values in it, about five.

        >>> Span(0.0, 17.0).ticks()
        [0.0, 5.0, 10.0, 15.0]
        """
        rough = (self.high - self.low) / 4
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.8 * rough)
        return [index * step for index in range(ceil(self.low / step), floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Line:
    """Points joined by straight lines. Where there are ``dots``, every point has one, with its colour and label."""

    points: tuple[tuple[float, float], ...]
    colour: str
    dash: str = ""
    dots: tuple["Dot", ...] = ()


@dataclass(frozen=True)
class Dot:
    """How a point of a line is marked; a bar reaches ``deviation`` up and down from it."""

    colour: str
    label: str
    deviation: float = 0.0


@dataclass(frozen=True)
class Panel:
    """One chart: its place in pixels, its titles and what its axes span."""

    left: int
    top: int
    width: int
    height: int
    titles: tuple[str, str, str]
    across: Span
    up: Span

    def x(self, value: float) -> float:
        """Pixels from the left."""
        inner = self.width - LEFT_PX - RIGHT_PX
        return self.left + LEFT_PX + inner * (value - self.across.low) / (self.across.high - self.across.low)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        inner = self.height - TOP_PX - BOTTOM_PX
        return self.top + TOP_PX + inner * (self.up.high - value) / (self.up.high - self.up.low)

    def draw(self, lines: Sequence[Line]) -> list[str]:
        """The SVG elements of the panel; lines end at its edges."""
        name = f"panel-{self.left}-{self.top}"
        x, y = self.x(self.across.low), self.y(self.up.high)
        frame = (
            f'x="{x:.1f}" y="{y:.1f}" width="{self.x(self.across.high) - x:.1f}" height="{self.y(self.up.low) - y:.1f}"'
        )
        return [
            *self._axes(),
            f'<clipPath id="{name}"><rect {frame}/></clipPath>',
            f'<g clip-path="url(#{name})">',
            *(part for line in lines for part in self._line(line)),
            "</g>",
            f'<rect {frame} fill="none" stroke="{RULE}"/>',
        ]

    def _axes(self) -> list[str]:
        title, across, up = (escape(text) for text in self.titles)
        left, right = self.x(self.across.low), self.x(self.across.high)
        top, bottom = self.y(self.up.high), self.y(self.up.low)
        parts = [
            f'<text x="{left:.1f}" y="{self.top + 18}" font-weight="600">{title}</text>',
            f'<text x="{(left + right) / 2:.1f}" y="{bottom + 36:.1f}" text-anchor="middle">{across}</text>',
            f'<text transform="translate({self.left + 14} {(top + bottom) / 2:.1f}) rotate(-90)" '
            f'text-anchor="middle">{up}</text>',
        ]
        for value in self.across.ticks():
            x = self.x(value)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="{RULE}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 17:.1f}" text-anchor="middle">{_written(value)}</text>')
        for value in self.up.ticks():
            y = self.y(value)
            parts.append(f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{RULE}"/>')
            parts.append(f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{_written(value)}</text>')
        return parts

    def _line(self, line: Line) -> list[str]:
        places = [(self.x(x), self.y(y)) for x, y in line.points]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        parts = [f'<polyline points="{joined}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>']
        for (x, y), dot in zip(places, line.dots, strict=False):
            bar = dot.deviation * (self.y(self.up.low) - self.y(self.up.high)) / (self.up.high - self.up.low)
            ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{y - bar:.1f}" y2="{y + bar:.1f}"'
            parts.append(f'<line {ends} stroke="{dot.colour}" stroke-width="2"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{dot.colour}"/>')
            parts.append(f'<text x="{x + 8:.1f}" y="{y - 6:.1f}">{escape(dot.label)}</text>')
        return parts


def document(width: int, height: int, parts: Sequence[str]) -> str:
    """A whole SVG file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13" fill="{INK}">\n<rect width="{width}" height="{height}" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _written(value: float) -> str:
    """A tick: few digits, thousands as k.

    >>> _written(12000.0), _written(0.3 + 1e-12), _written(90.0)
    ('12k', '0.3', '90')
    """
    return f"{value / 1000:.4g}k" if abs(value) >= 10_000 else f"{value:.4g}"
