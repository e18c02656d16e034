"""Horizontal bars: one panel for each workload, one row for each architecture, clock and node beside its name."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acf.report.compare import in_order, machine
from acf.report.style import HEADING_HEIGHT_PX, LEGEND_HEIGHT_PX, PANEL_HEADING_FONT, apply_layout, plot_text
from acf.sim.result import Result

AXIS_HEIGHT_PX = 64
STACKED_ROW_HEIGHT_PX = 44


@dataclass(frozen=True)
class Series:
    """One colour of a bar chart: for each result a value in plot units, a hover box and a text on the bar."""

    name: str
    marker: dict[str, Any]
    values: list[float]
    hovers: list[str]
    labels: list[str]
    label_position: str = "outside"
    in_legend: bool = True


def totals(labels: list[str]) -> Series:
    """Bars of no length that write the total of each stack behind its end."""
    return Series("total", {}, [0.0] * len(labels), labels, labels, in_legend=False)


def bars_by_workload(
    results: Sequence[Result],
    series: Sequence[Series],
    axis_title: str,
    *,
    stacked: bool = False,
    logarithmic: bool = False,
) -> go.Figure:
    """The chart of ``series``, stacked or side by side; all panels share one value axis."""
    workloads = in_order(result.workload for result in results)
    panels = [[index for index, result in enumerate(results) if result.workload == name] for name in workloads]
    row_px = STACKED_ROW_HEIGHT_PX if stacked else 26 + 18 * len(series)
    panels_px = row_px * len(results) + HEADING_HEIGHT_PX * (len(workloads) - 1)
    figure = make_subplots(
        rows=len(workloads),
        shared_xaxes=True,
        row_heights=[len(indices) for indices in panels],
        vertical_spacing=HEADING_HEIGHT_PX / panels_px if len(workloads) > 1 else 0,
        subplot_titles=[plot_text(name, limit=44) for name in workloads],
    )
    for row, indices in enumerate(panels, start=1):
        for one in series:
            figure.add_trace(_bars(results, indices, one, in_legend=row == 1 and one.in_legend), row=row, col=1)
        figure.update_yaxes(**_architecture_axis([results[index] for index in indices]), row=row, col=1)
    figure.update_annotations(x=0, xanchor="left", font=PANEL_HEADING_FONT)
    figure.update_xaxes(**_value_axis(series, logarithmic))
    figure.update_xaxes(title={"text": axis_title + (", logarithmic" if logarithmic else "")}, row=len(workloads))
    return _sized(figure, panels_px, series, stacked)


def _bars(results: Sequence[Result], indices: Sequence[int], series: Series, in_legend: bool) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[plot_text(results[index].architecture) for index in indices],
        x=[series.values[index] for index in indices],
        hovertext=[series.hovers[index] for index in indices],
        hoverinfo="text",
        text=[series.labels[index] for index in indices] if series.labels else None,
        textposition=series.label_position if series.labels else "none",
        insidetextanchor="middle",
        insidetextfont={"color": "#000000"},
        textangle=0,
        constraintext="none",
        cliponaxis=False,
        marker=series.marker,
        name=plot_text(series.name, limit=40),
        legendgroup=plot_text(series.name),
        showlegend=in_legend,
    )


def _value_axis(series: Sequence[Series], logarithmic: bool) -> dict[str, Any]:
    """From 0; or, logarithmic, from below the shortest bar to past the longest, where its label stands."""
    values = [value for one in series for value in one.values if value > 0]
    if not logarithmic or not values:
        return {"rangemode": "tozero", "nticks": 6}
    low, high = math.log10(min(values)), math.log10(max(values))
    return {"type": "log", "range": [low - 0.15 * (high - low), high + 0.25 * (high - low)], "dtick": 1}


def _architecture_axis(results: Sequence[Result]) -> dict[str, Any]:
    """First architecture on top; a name that looks like a number or a date stays a name."""
    names = [plot_text(result.architecture, limit=24) for result in results]
    machines = [f"<span style='font-size:0.85em'>{machine(result)}</span>" for result in results]
    return {
        "type": "category",
        "autorange": "reversed",
        "showgrid": False,
        "tickvals": [plot_text(result.architecture) for result in results],
        "ticktext": [f"{name}<br>{text}" for name, text in zip(names, machines, strict=True)],
    }


def _sized(figure: go.Figure, panels_px: int, series: Sequence[Series], stacked: bool) -> go.Figure:
    outside = any(one.labels and one.label_position == "outside" for one in series)
    legend_px = LEGEND_HEIGHT_PX if len(series) > 1 else 0
    if not stacked:
        figure.update_traces(marker={"line": {"width": 0}})
    return apply_layout(
        figure,
        height_px=panels_px + HEADING_HEIGHT_PX + AXIS_HEIGHT_PX + legend_px,
        barmode="stack" if stacked else "group",
        bargap=0.3,
        showlegend=len(series) > 1,
        margin={"l": 8, "r": 64 if outside else 16, "t": HEADING_HEIGHT_PX, "b": 8},
    )
