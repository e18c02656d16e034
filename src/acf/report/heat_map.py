"""Heat maps of utilisation: layers by phases, one panel for each workload of one architecture."""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from acf.report.compare import in_order, machine, percent, phase_name
from acf.report.style import HEADING_HEIGHT_PX, PANEL_HEADING_FONT, apply_layout, hover_text, plot_text
from acf.sim.result import Result

LAYER_LETTERS = 36
ROW_HEIGHT_PX = 26
# Cividis reaches the luminance at which black and white text are equally readable at 46 % of its range.
BLACK_TEXT_PERCENT = 46


def utilization_figure(results: Sequence[Result]) -> go.Figure:
    """U in percent for every layer and phase; ``results`` are the workloads of one architecture."""
    layers = _layers(results)
    figure = make_subplots(
        cols=len(results),
        shared_yaxes=True,
        horizontal_spacing=0.03 / len(results),
        subplot_titles=[plot_text(result.workload, limit=22) for result in results],
    )
    for column, result in enumerate(results, start=1):
        cells = _cells(result, layers)
        figure.add_trace(cells, row=1, col=column).add_trace(_cell_texts(cells), row=1, col=column)
    figure.update_annotations(font=PANEL_HEADING_FONT, yshift=HEADING_HEIGHT_PX)
    figure.update_xaxes(type="category", showgrid=False, tickangle=0, side="top")
    figure.update_yaxes(type="category", showgrid=False, range=[len(layers) - 0.5, -0.5])
    figure.update_yaxes(tickvals=[plot_text(name) for name in layers], row=1, col=1)
    figure.update_yaxes(ticktext=layer_labels(layers), row=1, col=1)
    cells_px = max(ROW_HEIGHT_PX * len(layers), 120)
    return apply_layout(
        figure,
        height_px=2 * HEADING_HEIGHT_PX + cells_px + 16,
        margin={"l": 8, "r": 8, "t": 2 * HEADING_HEIGHT_PX, "b": 16},
        coloraxis={"colorscale": "Cividis", "cmin": 0, "cmax": 100, "colorbar": _colour_bar(min(cells_px, 240))},
    )


def heat_map_width_px(results: Sequence[Result]) -> int:
    """Width below which the labels of `utilization_figure` would touch."""
    longest = max((len(label) for label in layer_labels(_layers(results))), default=0)
    return 80 + 8 * longest + 180 * len(results)


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


def _utilizations(result: Result) -> dict[tuple[str, str], float]:
    """U by (layer, phase); a layer that ran several times counts once, over all its slots."""
    effectual_macs: Counter[tuple[str, str]] = Counter()
    slots: Counter[tuple[str, str]] = Counter()
    for op in result.ops:
        effectual_macs[op.name, op.phase] += op.effectual_macs
        slots[op.name, op.phase] += op.cycles * result.macs_per_cycle
    return {key: effectual_macs[key] / count for key, count in slots.items() if count}


def _cells(result: Result, layers: Sequence[str]) -> go.Heatmap:
    """Coloured cells; a layer without the phase stays empty."""
    shares = _utilizations(result)
    phases = in_order(op.phase for op in result.ops)
    return go.Heatmap(
        x=[plot_text(phase_name(phase)).replace(" ", "<br>") for phase in phases],
        y=[plot_text(layer) for layer in layers],
        z=[[100 * shares[layer, phase] if (layer, phase) in shares else None for phase in phases] for layer in layers],
        hovertext=[[_hover(result, layer, phase, shares) for phase in phases] for layer in layers],
        hoverinfo="text",
        hoverongaps=False,
        xgap=2,
        ygap=2,
        coloraxis="coloraxis",
    )


def _hover(result: Result, layer: str, phase: str, shares: dict[tuple[str, str], float]) -> str:
    title = f"{layer}, {phase_name(phase)}"
    played = f"{result.architecture} on {result.workload}"
    return hover_text(title, f"U {percent(shares.get((layer, phase), 0.0))}", played, machine(result))


def _cell_texts(cells: go.Heatmap) -> go.Scatter:
    """The numbers in the cells, in black or white, whichever stands out on the cell's colour."""
    filled = [
        (x, y, value)
        for y, row in zip(cells.y, cells.z, strict=True)
        for x, value in zip(cells.x, row, strict=True)
        if value is not None
    ]
    return go.Scatter(
        x=[x for x, _, _ in filled],
        y=[y for _, y, _ in filled],
        text=[f"{value:.0f}" for _, _, value in filled],
        textfont={"color": ["#ffffff" if value < BLACK_TEXT_PERCENT else "#000000" for _, _, value in filled]},
        mode="text",
        hoverinfo="skip",
        showlegend=False,
    )


def _colour_bar(length_px: int) -> dict[str, Any]:
    ticks = [0, 25, 50, 75, 100]
    return {
        "tickvals": ticks,
        "ticktext": [f"{tick} %" for tick in ticks],
        "thickness": 12,
        "outlinewidth": 0,
        "lenmode": "pixels",
        "len": length_px,
        "y": 1,
        "yanchor": "top",
        "ypad": 0,
    }
