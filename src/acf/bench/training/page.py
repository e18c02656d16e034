"""A record of training runs as a section of the HTML report: quality by time and by energy, and the summaries."""

from math import isfinite

import plotly.graph_objects as go

from acf.bench.columns import TRAINING_RUNS, TRIALS
from acf.bench.training.record import TrainingComparison
from acf.bench.training.run import CurvePoint, mean_curve
from acf.columns import page_table
from acf.report.extra import ExtraPlot, ExtraSection, ExtraTable
from acf.report.style import PALETTE, apply_layout, plain_text, plot_text

HEIGHT_PX = 380
COSTS = {"seconds": "s", "joules": "J"}
"""What quality is plotted against, and its unit."""


def training_section(comparison: TrainingComparison) -> ExtraSection:
    """Curves of the mean over seeds of every variant, one row for each variant, and the settings that were tried."""
    task = comparison.task
    tables = [ExtraTable("Variants, over the first", page_table(TRAINING_RUNS, comparison.summaries()))]
    if comparison.trials:
        tables.append(ExtraTable("Settings tried", page_table(TRIALS, comparison.trials)))
    curves = {name: mean_curve(comparison.runs_of(name)) for name in comparison.variants()}
    plots = [
        _plot(comparison, curves, cost)
        for cost in COSTS
        if any(getattr(point, cost) is not None for curve in curves.values() for point in curve)
    ]
    text = f"{len(comparison.runs)} runs of {len(curves)} variants; quality is {task.quality}."
    return ExtraSection(f"Training: {task.name}, width {task.width}", text, tuple(plots), tuple(tables))


def _plot(comparison: TrainingComparison, curves: dict[str, tuple[CurvePoint, ...]], cost: str) -> ExtraPlot:
    figure = go.Figure()
    for index, (name, curve) in enumerate(curves.items()):
        points = [point for point in curve if getattr(point, cost) is not None and isfinite(point.quality)]
        if not points:
            continue
        figure.add_trace(
            go.Scatter(
                x=[getattr(point, cost) for point in points],
                y=[point.quality for point in points],
                mode="lines+markers",
                name=plot_text(name, limit=40),
                hovertemplate=f"<b>{plain_text(name)}</b><br>%{{x:.4~g}} {COSTS[cost]}<br>%{{y:.4~g}}<extra></extra>",
                line={"color": PALETTE[index % len(PALETTE)], "width": 2},
                marker={"size": 5},
            )
        )
    quality = comparison.task.quality
    figure.update_xaxes(title={"text": f"{cost} of training"}, rangemode="tozero")
    figure.update_yaxes(title={"text": plot_text(quality)})
    better = "Up" if comparison.higher_is_better else "Down"
    caption = f"{better} and left is better; each curve is the mean over the seeds of a variant."
    return ExtraPlot(f"{quality} by {cost}", caption, apply_layout(figure, height_px=HEIGHT_PX, showlegend=True))
