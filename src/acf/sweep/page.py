"""A sweep as a section of the HTML report."""

from itertools import combinations

import plotly.graph_objects as go

from acf.columns import PAGE, page_table, shown_in
from acf.report.extra import ExtraPlot, ExtraSection, ExtraTable
from acf.report.style import PALETTE, REFERENCE_COLOUR, apply_layout, hover_text, plot_text
from acf.sweep.columns import importance_columns, importance_rows, point_columns
from acf.sweep.evaluation import Objective
from acf.sweep.run import SweepRecord, SweepRow

PLOT_HEIGHT_PX = 380
MOST_ROWS = 500
"""Points in the table of a page; a CSV file has all of them."""


def sweep_section(record: SweepRecord) -> ExtraSection:
    """The Pareto front for every pair of objectives, how much each parameter matters, and the points."""
    shown = (*record.front, *(row for row in record.rows if not row.on_front))[:MOST_ROWS]
    columns = shown_in(PAGE, point_columns(record))
    return ExtraSection(
        title=record.title,
        text=summary(record),
        plots=(*_front_plots(record), _importance_plot(record)),
        tables=(
            ExtraTable("Importance of parameters", page_table(importance_columns(record), importance_rows(record))),
            ExtraTable(f"{len(shown)} of {len(record.rows)} points, the front first", page_table(columns, shown)),
        ),
    )


def summary(record: SweepRecord) -> str:
    """How many points there are, on the front and failed, and what the front minimises or maximises."""
    aims = ", ".join(f"{'largest' if each.maximise else 'smallest'} {each.name}" for each in record.objectives)
    failed = f", {len(record.failed)} failed" if record.failed else ""
    return f"{len(record.rows)} points, {len(record.front)} on the Pareto front of {aims}{failed}"


def _front_plots(record: SweepRecord) -> list[ExtraPlot]:
    caption = "Points on the Pareto front of all objectives are coloured; the others are dominated."
    return [
        ExtraPlot(f"{_title(y)} against {_title(x)}", caption, _front_figure(record, x, y))
        for x, y in combinations(record.objectives, 2)
        if any(_has(row, x, y) for row in record.rows)
    ]


def _front_figure(record: SweepRecord, x: Objective, y: Objective) -> go.Figure:
    figure = go.Figure()
    groups = (("dominated", REFERENCE_COLOUR, False), ("on the front", PALETTE[0], True))
    for name, colour, on_front in groups:
        rows = [row for row in record.rows if row.on_front is on_front and _has(row, x, y)]
        if not rows:
            continue
        figure.add_trace(
            go.Scatter(
                x=[_figure(row, x) for row in rows],
                y=[_figure(row, y) for row in rows],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 9 if on_front else 6, "opacity": 1.0 if on_front else 0.5},
                hovertext=[_hover(row, x, y) for row in rows],
                hoverinfo="text",
            )
        )
    figure.update_xaxes(title={"text": plot_text(_title(x))}, type=_scale(record, x))
    figure.update_yaxes(title={"text": plot_text(_title(y))}, type=_scale(record, y))
    return apply_layout(figure, height_px=PLOT_HEIGHT_PX, margin={"l": 8, "r": 16, "t": 8, "b": 60})


def _importance_plot(record: SweepRecord) -> ExtraPlot:
    figure = go.Figure()
    names = importance_rows(record)
    for index, objective in enumerate(record.objectives):
        shares = [record.importance[name].get(objective.name, 0.0) for name in names]
        marker = {"color": PALETTE[index % len(PALETTE)]}
        figure.add_trace(
            go.Bar(x=list(map(plot_text, names)), y=shares, name=plot_text(_title(objective)), marker=marker)
        )
    figure.update_yaxes(title={"text": "share of variance"}, range=[0, 1], tickformat=".0%")
    return ExtraPlot(
        "Importance of parameters",
        "Share of an objective's variance that a parameter alone explains; what is missing to 100 % is interaction.",
        apply_layout(figure, height_px=PLOT_HEIGHT_PX, margin={"l": 8, "r": 16, "t": 8, "b": 60}),
    )


def _title(objective: Objective) -> str:
    """The name of an objective in words; its unit stands at its end."""
    return objective.name.replace("_", " ")


def _figure(row: SweepRow, objective: Objective) -> float | None:
    return (row.attempt.figures or {}).get(objective.name)


def _has(row: SweepRow, *objectives: Objective) -> bool:
    return all(_figure(row, objective) is not None for objective in objectives)


def _scale(record: SweepRecord, objective: Objective) -> str:
    """Logarithmic where the figures are positive and span more than a decade."""
    figures = [figure for row in record.rows if (figure := _figure(row, objective)) is not None]
    return "log" if figures and min(figures) > 0 and max(figures) > 10 * min(figures) else "linear"


def _hover(row: SweepRow, *objectives: Objective) -> str:
    title = ", ".join(f"{name} {value}" for name, value in row.attempt.changes.items())
    return hover_text(title, *(f"{each.name} {_figure(row, each):.4g}" for each in objectives))
