"""Heat maps of layers by phases, one panel for each workload of one architecture: utilisation, and time."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acf.report.compare import in_order, machine, percent, phase_name, written_si
from acf.report.style import HEADING_HEIGHT_PX, PANEL_HEADING_FONT, apply_layout, hover_template, plot_text
from acf.sim.result import Result

LAYER_LETTERS = 28
ROW_HEIGHT_PX = 26
PANEL_WIDTH_PX = 200

Cell = tuple[str, str]
"""Layer and phase."""


@dataclass(frozen=True)
class Panel:
    """What one result has by layer and phase: U, share of the time of all products, and kind and shape."""

    result: Result
    phases: list[str]
    utilization: dict[Cell, float]
    time_share: dict[Cell, float]
    shapes: dict[Cell, str]

    @classmethod
    def of(cls, result: Result) -> "Panel":
        """The panel of ``result``; a layer that ran several times counts once, over all its cycles."""
        effectual_macs: Counter[Cell] = Counter()
        cycles: Counter[Cell] = Counter()
        for op in result.ops:
            effectual_macs[op.name, op.phase] += op.effectual_macs
            cycles[op.name, op.phase] += op.cycles
        ran = {cell: count for cell, count in cycles.items() if count}
        return cls(
            result,
            in_order(op.phase for op in result.ops),
            {cell: effectual_macs[cell] / (count * result.macs_per_cycle) for cell, count in ran.items()},
            {cell: count / result.cycles for cell, count in ran.items()},
            {(op.name, op.phase): op.shape for op in result.ops},
        )

    def time(self, cell: Cell) -> str:
        """Time of a cell with its unit."""
        return written_si(self.time_share.get(cell, 0.0) * self.result.seconds, "s")


@dataclass(frozen=True)
class CellMeasure:
    """What the cells show: ``shares`` in [0, 1] colour them, up to ``highest``; ``text`` stands in them."""

    shares: Callable[[Panel], dict[Cell, float]]
    text: Callable[[Panel, Cell], str]
    highest: float


def utilization_figure(results: Sequence[Result]) -> go.Figure:
    """U in percent for every layer and phase; ``results`` are the workloads of one architecture."""
    panels = [Panel.of(result) for result in results]
    return _figure(
        panels,
        CellMeasure(
            lambda panel: panel.utilization, lambda panel, cell: f"{100 * panel.utilization[cell]:.0f}", highest=1.0
        ),
    )


def layer_time_figure(results: Sequence[Result]) -> go.Figure:
    """Time of every layer and phase, coloured by its share of all products of the step."""
    panels = [Panel.of(result) for result in results]
    highest = max((share for panel in panels for share in panel.time_share.values()), default=1.0)
    return _figure(panels, CellMeasure(lambda panel: panel.time_share, Panel.time, highest))


def _figure(panels: Sequence[Panel], measure: CellMeasure) -> go.Figure:
    layers = _layers([panel.result for panel in panels])
    figure = make_subplots(
        cols=len(panels),
        shared_yaxes=True,
        horizontal_spacing=0.03 / len(panels),
        subplot_titles=[plot_text(panel.result.workload, limit=20) for panel in panels],
    )
    for column, panel in enumerate(panels, start=1):
        figure.add_trace(_cells(panel, layers, measure), row=1, col=column)
    figure.update_annotations(font=PANEL_HEADING_FONT, yshift=HEADING_HEIGHT_PX)
    figure.update_xaxes(type="category", showgrid=False, tickangle=0, side="top")
    figure.update_yaxes(type="category", showgrid=False, range=[len(layers) - 0.5, -0.5])
    figure.update_yaxes(tickvals=[plot_text(name) for name in layers], row=1, col=1)
    figure.update_yaxes(ticktext=layer_labels(layers), row=1, col=1)
    cells_px = max(ROW_HEIGHT_PX * len(layers), 120)
    colours = {"colorscale": "Cividis", "cmin": 0, "cmax": 100 * measure.highest}
    return apply_layout(
        figure,
        height_px=2 * HEADING_HEIGHT_PX + cells_px + 16,
        margin={"l": 8, "r": 8, "t": 2 * HEADING_HEIGHT_PX, "b": 16},
        coloraxis=colours | {"colorbar": _colour_bar(min(cells_px, 240))},
    )


def heat_map_width_px(results: Sequence[Result]) -> int:
    """Width below which the labels of a heat map would touch."""
    longest = max((len(label) for label in layer_labels(_layers(results))), default=0)
    return 110 + 8 * longest + PANEL_WIDTH_PX * len(results)


def layer_labels(layers: Sequence[str]) -> list[str]:
    """Names short enough for an axis and still distinct: a module path common to all goes first.

    >>> layer_labels(["vision.encoder.block.0.attention.output", "vision.encoder.block.1.attention.output"])
    ['…0.attention.output', '…1.attention.output']
    """
    if all(len(name) <= LAYER_LETTERS for name in layers):
        return [plot_text(name) for name in layers]
    paths = [name.split(".") for name in layers]
    levels = zip(*(path[:-1] for path in paths), strict=False)
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    names = ["…" * (shared > 0) + ".".join(path[shared:]) for path in paths]
    short = [plot_text(name, limit=LAYER_LETTERS) for name in names]
    return short if len(set(short)) == len(names) else [plot_text(name) for name in names]


def _layers(results: Sequence[Result]) -> list[str]:
    return in_order(op.name for result in results for op in result.ops)


def _cells(panel: Panel, layers: Sequence[str], measure: CellMeasure) -> go.Heatmap:
    """Coloured cells with a text in each; a layer without the phase stays empty."""
    shares = measure.shares(panel)
    grid = [[(layer, phase) for phase in panel.phases] for layer in layers]
    played = f"{panel.result.architecture} on {panel.result.workload}, {machine(panel.result)}"
    return go.Heatmap(
        x=[plot_text(phase_name(phase)).replace(" ", "<br>") for phase in panel.phases],
        y=[plot_text(layer) for layer in layers],
        z=[[round(100 * shares[cell], 1) if cell in shares else None for cell in row] for row in grid],
        text=[[measure.text(panel, cell) if cell in shares else "" for cell in row] for row in grid],
        texttemplate="%{text}",
        textfont={"size": 12},
        hovertext=[[_hover(panel, cell) if cell in shares else "" for cell in row] for row in grid],
        hovertemplate=hover_template("%{y}", "%{hovertext}", played),
        hoverongaps=False,
        xgap=2,
        ygap=2,
        coloraxis="coloraxis",
    )


def _hover(panel: Panel, cell: Cell) -> str:
    """Phase, U and time of the cell, and its kind and shape."""
    figures = f"{phase_name(cell[1])}: U {percent(panel.utilization[cell])}, {panel.time(cell)}"
    return "<br>".join(plot_text(line, limit=64) for line in (figures, panel.shapes[cell]) if line)


def _colour_bar(length_px: int) -> dict[str, Any]:
    return {
        "ticksuffix": " %",
        "nticks": 6,
        "thickness": 12,
        "outlinewidth": 0,
        "lenmode": "pixels",
        "len": length_px,
        "y": 1,
        "yanchor": "top",
        "ypad": 0,
    }
