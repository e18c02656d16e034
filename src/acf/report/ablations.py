"""Ablations on the page: one figure for each plotted measure, and the table of all measures."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acf.columns import PAGE, ROUND_SHARE, TERMINAL, Column, Format, PageTable, page_table, shown_in
from acf.metrics import MEASURES, AblationRecord, AblationRow
from acf.metrics.ablation import RATIO, written_spread
from acf.report.compare import in_order, percent
from acf.report.curves import DASHES
from acf.report.style import (
    HEADING_HEIGHT_PX,
    PALETTE,
    PANEL_HEADING_FONT,
    REFERENCE_COLOUR,
    AxisUnit,
    apply_layout,
    axis_unit,
    hover_text,
    plot_text,
)

PANEL_HEIGHT_PX = 150
AXIS_HEIGHT_PX = 110
_SPARSITY = Format(ROUND_SHARE.plain, ROUND_SHARE.page, is_number=False)


@dataclass(frozen=True)
class AblationTable:
    """The table of one ablation, what it measured under which conditions, and what failed."""

    title: str
    conditions: str
    note: str
    table: PageTable
    failures: tuple[str, ...]


def ablation_columns(record: AblationRecord) -> tuple[Column[AblationRow], ...]:
    """The columns of an ablation: where the point lies, then mean and deviation of every measure of `MEASURES`."""
    return (
        Column("sparsity", "sparsity", lambda row: row.sparsity, _SPARSITY, css="fixed"),
        Column("series", "series", lambda row: row.series, css="name"),
        Column("value", record.axis, lambda row: row.value, names_row=True),
        *(_measure_column(name) for name in record.measures),
        *([_FAILURE] if record.failed else []),
    )


_FAILURE: Column[AblationRow] = Column(
    "failure",
    "failed",
    lambda row: row.failures[0] if row.failures and not row.spreads else None,
    Format(str, absent="", is_number=False),
    "why the point could not be measured",
    places=(TERMINAL,),
    style=lambda _: "red",
)


def _measure_column(name: str) -> Column[AblationRow]:
    return Column(
        name,
        MEASURES[name].heading,
        lambda row: row.spreads.get(name),
        Format(lambda spread: written_spread(name, spread).replace(" %", "%"), lambda s: written_spread(name, s)),
    )


def ablation_tables(records: Sequence[AblationRecord]) -> list[AblationTable]:
    """The tables of all ablations."""
    return [
        AblationTable(
            title=record.title,
            conditions=record.conditions,
            note=record.note,
            table=page_table(shown_in(PAGE, ablation_columns(record)), record.rows),
            failures=tuple(
                f"{row.series}, {row.value}, {percent(row.sparsity)}: {failure}"
                for row in record.rows
                for failure in row.failures
            ),
        )
        for record in records
    ]


def ablation_figure(record: AblationRecord, name: str) -> go.Figure:
    """One measure: a panel for each sparsity, a line for each series, bars for the deviation over seeds."""
    rows = [row for row in record.rows if name in row.spreads]
    sparsities = list(dict.fromkeys(row.sparsity for row in rows)) or [0.0]
    unit = _unit(name, rows)
    panels_px = PANEL_HEIGHT_PX * len(sparsities) + HEADING_HEIGHT_PX * (len(sparsities) - 1)
    figure = make_subplots(
        rows=len(sparsities),
        shared_xaxes=True,
        vertical_spacing=HEADING_HEIGHT_PX / panels_px if len(sparsities) > 1 else 0,
        subplot_titles=[f"{percent(sparsity)} sparse" for sparsity in sparsities],
    )
    series = in_order(row.series for row in record.rows)
    for panel, sparsity in enumerate(sparsities, start=1):
        for index, line in enumerate(series):
            members = [row for row in rows if row.sparsity == sparsity and row.series == line]
            figure.add_trace(_line(members, name, line, index, unit, in_legend=panel == 1), row=panel, col=1)
    places = [plot_text(value) for value in in_order(row.value for row in record.rows)]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=places)
    figure.update_xaxes(title={"text": plot_text(record.axis)}, row=len(sparsities))
    heading = MEASURES[name].heading
    title = f"{heading} ({unit.name})" if unit.name else heading
    figure.update_yaxes(title={"text": title}, row=(len(sparsities) + 1) // 2)
    if MEASURES[name].kind is RATIO:
        figure.add_hline(y=1, line={"dash": "dash", "width": 1.5, "color": REFERENCE_COLOUR})
    figure.update_annotations(x=0, xanchor="left", font=PANEL_HEADING_FONT)
    return apply_layout(
        figure,
        height_px=panels_px + HEADING_HEIGHT_PX + AXIS_HEIGHT_PX,
        showlegend=len(series) > 1,
        margin={"l": 8, "r": 16, "t": HEADING_HEIGHT_PX, "b": 8},
    )


def _line(
    rows: Sequence[AblationRow], name: str, series: str, index: int, unit: AxisUnit, in_legend: bool
) -> go.Scatter:
    spreads = [row.spreads[name] for row in rows]
    colour = PALETTE[index % len(PALETTE)]
    return go.Scatter(
        x=[plot_text(row.value) for row in rows],
        y=[spread.mean / unit.factor for spread in spreads],
        error_y={"type": "data", "array": [spread.deviation / unit.factor for spread in spreads], "thickness": 1.5},
        mode="lines+markers",
        name=plot_text(series, limit=40),
        legendgroup=plot_text(series),
        showlegend=in_legend,
        hovertext=[
            hover_text(
                f"{series}, {row.value}",
                f"{MEASURES[name].heading}: {written_spread(name, spread)}",
                f"{percent(row.sparsity)} sparse, {spread.seeds} seeds",
            )
            for row, spread in zip(rows, spreads, strict=True)
        ],
        hoverinfo="text",
        line={"color": colour, "width": 2, "dash": DASHES[index // len(PALETTE) % len(DASHES)]},
        marker={"size": 7, "symbol": index % 5},
    )


def _unit(name: str, rows: Sequence[AblationRow]) -> AxisUnit:
    kind = MEASURES[name].kind
    if kind.axis_factor is not None:
        return AxisUnit(kind.axis_factor, kind.unit)
    return axis_unit((row.spreads[name].mean for row in rows), kind.unit)
