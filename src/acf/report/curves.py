"""Training curves: loss, test accuracy and moved blocks by step; a run keeps its colour in all of them."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from acf.metrics import TrainingRecord
from acf.report.style import PALETTE, apply_layout, axis_unit, plain_text, plot_text

CURVE_HEIGHT_PX = 360
CURVE_POINTS = 500
SMOOTHED_SHARE = 0.02
DASHES = ("solid", "dash", "dot", "dashdot")
STEP, ACCURACY = "step %{x:,}", "test accuracy %{y:.1f} %"
COSTS = {"test_seconds": ("s", "training time"), "test_joules": ("J", "energy of training")}
"""Unit and name of what a test accuracy is plotted against besides steps."""


def loss_figure(training: Sequence[TrainingRecord]) -> go.Figure:
    """Training loss by step, each point the mean of the `smoothing_steps` steps around it."""
    figure = go.Figure()
    for index, record in enumerate(training):
        losses = smoothed(record.losses)
        steps = range(1, len(losses) + 1, max(1, len(losses) // CURVE_POINTS))
        points = [(step, losses[step - 1]) for step in steps]
        averaged = f"mean of {smoothing_steps(len(losses))} steps"
        figure.add_trace(_curve(record, index, points, f"{STEP}<br>loss %{{y:.4~g}}, {averaged}"))
    return _curve_layout(figure.update_traces(mode="lines"), "training loss")


def accuracy_figure(training: Sequence[TrainingRecord]) -> go.Figure:
    """Test accuracy in percent by step."""
    figure = go.Figure()
    for index, record in enumerate(training):
        points = [(step, 100 * accuracy) for step, accuracy in record.test_accuracies]
        figure.add_trace(_curve(record, index, points, f"{STEP}<br>{ACCURACY}"))
    return _curve_layout(figure, "test accuracy (%)")


def accuracy_by_cost_figure(training: Sequence[TrainingRecord], field: str) -> go.Figure:
    """Test accuracy against ``field``: ``test_seconds`` of training or ``test_joules``; runs without are left out."""
    unit, name = COSTS[field]
    scale = axis_unit((value for record in training for value in getattr(record, field)), unit)
    figure = go.Figure()
    for index, record in enumerate(training):
        costs = [value / scale.factor for value in getattr(record, field)]
        if costs:
            accuracies = [100 * accuracy for _, accuracy in record.test_accuracies]
            points = list(zip(costs, accuracies, strict=True))
            figure.add_trace(_curve(record, index, points, f"%{{x:.4~g}} {scale.name}<br>{ACCURACY}"))
    return _curve_layout(figure, "test accuracy (%)", f"{name} ({scale.name})")


def moved_blocks_figure(training: Sequence[TrainingRecord]) -> go.Figure:
    """Blocks that moved at each topology step; runs without one are left out."""
    figure = go.Figure()
    for index, record in enumerate(training):
        if record.moved_blocks:
            figure.add_trace(_curve(record, index, record.moved_blocks, f"{STEP}<br>%{{y:,}} blocks moved"))
    return _curve_layout(figure, "blocks moved").update_yaxes(rangemode="tozero")


def smoothing_steps(steps: int) -> int:
    """Odd number of steps that one point of a loss curve averages: about 2 % of the run.

    >>> smoothing_steps(1500), smoothing_steps(20)
    (31, 1)
    """
    return 2 * int(SMOOTHED_SHARE * steps / 2) + 1


def smoothed(losses: Sequence[float]) -> list[float]:
    """Centred moving mean, shorter at both ends; losses that are not finite count in no mean.

    A window without a finite loss is NaN, which leaves a gap in the curve.
    """
    half = smoothing_steps(len(losses)) // 2
    values = np.asarray(losses, dtype=np.float64)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    index = np.arange(len(values))
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    number = counts[last] - counts[first]
    means = np.where(number > 0, (sums[last] - sums[first]) / np.maximum(number, 1), np.nan)
    return [float(mean) for mean in means]


def _curve(record: TrainingRecord, index: int, points: Sequence[tuple[float, float]], hover_lines: str) -> go.Scatter:
    """A line with markers; ``hover_lines`` is a template that plotly fills in, the same for every point."""
    return go.Scatter(
        x=[x for x, _ in points],
        y=[float(f"{y:.6g}") for _, y in points],
        mode="lines+markers",
        name=plot_text(record.label, limit=40),
        hovertemplate=f"<b>{plain_text(record.label)}</b><br>{hover_lines}<extra></extra>",
        line={"color": PALETTE[index % len(PALETTE)], "width": 2, "dash": DASHES[index // len(PALETTE) % 4]},
        marker={"size": 5},
    )


def _curve_layout(figure: go.Figure, axis_title: str, x_title: str = "training step") -> go.Figure:
    figure.update_xaxes(title={"text": x_title}, rangemode="tozero")
    figure.update_yaxes(title={"text": axis_title})
    return apply_layout(figure, height_px=CURVE_HEIGHT_PX, showlegend=True)
