"""How every plot looks: colours, user text made safe, axis units and the shared layout."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any
from zlib import crc32

import plotly.graph_objects as go

from acf.units import PREFIXES

# Okabe and Ito's colour-blind-safe palette, its blue lighter, its yellow darker and grey in place of black, so that
# every colour shows on light and on dark pages.
PALETTE = ("#1a80c4", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#c9bb1c")
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, GREY, YELLOW = PALETTE
EFFECTUAL_COLOUR = GREEN
SPEEDUP_COLOUR = VERMILION
REFERENCE_COLOUR = GREY
PATTERNS = ("", "/", ".", "x")

STALLS: dict[str, tuple[str, str]] = {
    "memory": (VERMILION, ""),
    "ineffectual": (GREY, ""),
    "edge": (SKY, ""),
    "imbalance": (ORANGE, ""),
    "mesh": (BLUE, ""),
    "scan": (PINK, ""),
    "fill": (YELLOW, ""),
    "drain": (YELLOW, "/"),
    "latency": (BLUE, "/"),
    "engines": (PINK, "/"),
    "padding": (SKY, "/"),
    "no_pair": (ORANGE, "/"),
    "below_peak": (GREY, "/"),
    "launch": (VERMILION, "/"),
    "other": (GREY, "x"),
}
"""Colour and hatching of every reason for which MAC slots are lost, the same in every report."""

ENERGY: dict[str, tuple[str, str]] = {
    "mac": (GREEN, ""),
    "sram": (BLUE, ""),
    "dram": (VERMILION, ""),
    "leakage": (GREY, ""),
    "vector": (YELLOW, ""),
    "mesh": (PINK, ""),
    "control": (ORANGE, ""),
    "clock": (SKY, ""),
    "index": (SKY, "/"),
    "sequencers": (ORANGE, "/"),
    "static": (GREY, "/"),
    "other": (GREY, "x"),
}
"""The same for the components of energy."""

# Grey of about 4.5 : 1 contrast on white and on black; the page replaces it by the reader's own ink.
INK_ANYWHERE = "#777777"
RULE_ANYWHERE = "rgba(128, 128, 128, 0.3)"
HEADING_HEIGHT_PX = 40
LEGEND_HEIGHT_PX = 48
"""Height that figures keep free for their legend; the page adds what a longer one needs."""
PANEL_HEADING_FONT = {"size": 14, "weight": 600}
TRANSPARENT = "rgba(0, 0, 0, 0)"


def plot_text(text: str, limit: int | None = None) -> str:
    """User text that plotly shows letter by letter: its markup escaped, a part left out past ``limit``.

    Names differ mostly at their end, so three quarters of a shortened one are its end.

    >>> plot_text("<b>dense</b> & co")
    '&lt;b&gt;dense&lt;/b&gt; &amp; co'
    >>> plot_text("encoder.layers.11.attention.query", limit=24)
    'encode…1.attention.query'
    """
    line = " ".join(text.split()) or "(unnamed)"
    if limit is not None and len(line) > limit:
        line = line[: limit // 4] + "…" + line[limit // 4 + 1 - limit :]
    return escape(line, quote=False)


def hover_text(title: str, *lines: str) -> str:
    """The box over a data point: ``title`` in bold, then one line each; the text is safe afterwards."""
    return "<br>".join([f"<b>{plot_text(title, limit=64)}</b>", *(plot_text(line, limit=64) for line in lines)])


def hover_template(title: str, lines: str, where: str) -> str:
    """The same box for all points of a series: plotly fills in what ``title`` and ``lines`` name; ``where`` is text.

    >>> hover_template("%{y}", "step %{x}", "run %{z}")
    '<b>%{y}</b><br>step %{x}<br>run % {z}<extra></extra>'
    """
    return f"<b>{title}</b><br>{lines}<br>{plain_text(where)}<extra></extra>"


def plain_text(text: str) -> str:
    """User text inside a template: safe, and never read as a part that plotly fills in."""
    return plot_text(text, limit=64).replace("%{", "% {")


def bar_marker(index: int) -> dict[str, Any]:
    """Colour of the ``index``-th series; past the palette a hatching tells series apart."""
    return _marker(PALETTE[index % len(PALETTE)], PATTERNS[index // len(PALETTE) % len(PATTERNS)])


def named_marker(name: str, known: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Colour and hatching of a name; those of a name that is not in ``known`` follow from its letters alone."""
    checksum = crc32(name.encode())
    drawn_for_unknown = (PALETTE[checksum % len(PALETTE)], PATTERNS[2 + checksum // len(PALETTE) % 2])
    return _marker(*known.get(name, drawn_for_unknown))


def _marker(colour: str, pattern: str) -> dict[str, Any]:
    return {"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay"}}


@dataclass(frozen=True)
class AxisUnit:
    """A unit that makes an axis readable: plotted value = value / ``factor``, written in ``name``."""

    factor: float
    name: str


def axis_unit(values: Iterable[float], unit: str) -> AxisUnit:
    """The SI prefix of the largest of ``values``.

    >>> axis_unit([0.0004, 0.0121], "s")
    AxisUnit(factor=0.001, name='ms')
    """
    largest = max((abs(value) for value in values), default=0.0)
    for factor, prefix in PREFIXES:
        if largest >= factor:
            return AxisUnit(factor, prefix.replace("u", "µ") + unit)
    return AxisUnit(1.0, unit)


def _template() -> go.layout.Template:
    """Defaults of every plot; the page swaps the two greys for its light or dark colours."""
    axis = {
        "gridcolor": RULE_ANYWHERE,
        "linecolor": RULE_ANYWHERE,
        "zerolinecolor": RULE_ANYWHERE,
        "automargin": True,
        "ticks": "",
        "ticklabelstandoff": 6,
        "title": {"standoff": 12, "font": {"size": 12}},
    }
    layout = {
        "font": {"color": INK_ANYWHERE, "size": 13},
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "colorway": PALETTE,
        "dragmode": False,
        "hoverlabel": {"align": "left", "namelength": -1},
        "modebar": {"bgcolor": TRANSPARENT, "color": RULE_ANYWHERE, "activecolor": INK_ANYWHERE},
        "xaxis": axis,
        "yaxis": axis,
    }
    return go.layout.Template(layout=layout)


def apply_layout(figure: go.Figure, height_px: int, **layout: Any) -> go.Figure:
    """``figure`` with the house template, its height and a legend below the plot."""
    return figure.update_layout(
        template=_template(),
        height=height_px,
        meta={"legend_px": LEGEND_HEIGHT_PX},
        margin={"l": 8, "r": 16, "t": 8, "b": 8},
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "title": {"text": ""},
        },
    ).update_layout(**layout)
