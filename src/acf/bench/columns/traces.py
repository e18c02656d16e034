"""Columns of `acf traces` and `acf epochs`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from acf.bench.columns.formats import NUMBER, WHOLE_PERCENT
from acf.columns import RATIO, SHARE, Column, Format, terminal_table

if TYPE_CHECKING:
    from acf.bench.epochs.figures import EpochFigures
    from acf.bench.traces import TraceFigures


def _zero_share(key: str, title: str, figures: "Callable[[TraceFigures], float | None]") -> "Column[TraceFigures]":
    return Column(key, title, figures, WHOLE_PERCENT)


def _tensordash(key: str, title: str) -> "Column[TraceFigures]":
    return Column(f"tensordash_{key}", title, lambda each: each.tensordash[key], RATIO)


SPEEDUPS: "tuple[Column[TraceFigures], ...]" = (
    _tensordash("forward", "tensordash FP"),
    _tensordash("input_grad", "BP"),
    _tensordash("weight_grad", "WU"),
    _tensordash("compute", "compute"),
    _tensordash("step", "step"),
    Column("spartann", "spartann", lambda each: each.spartann, RATIO),
    Column("fabric", "acf-512", lambda each: each.fabric, RATIO),
)
"""Speedups of one traced step, for the tables of traces and of epochs."""

TRACE: "tuple[Column[TraceFigures], ...]" = (
    Column("label", "trace", lambda each: each.label.split(":")[0]),
    _zero_share("zero_activations", "A", lambda each: each.zeros.get("activation")),
    _zero_share("zero_weights", "W", lambda each: each.zeros.get("weight")),
    _zero_share("zero_gradients", "G", lambda each: each.zeros.get("gradient")),
    _zero_share("idle_forward", "idle FP", lambda each: each.idle_macs.get("forward")),
    _zero_share("idle_input_grad", "BP", lambda each: each.idle_macs.get("input_grad")),
    _zero_share("idle_weight_grad", "WU", lambda each: each.idle_macs.get("weight_grad")),
    *SPEEDUPS,
)
"""`acf traces`: one row for each trace."""


def trace_table(figures: "Sequence[TraceFigures]") -> Table:
    """Zeros, products with a zero and speedups of several traces."""
    labels = "\n".join(each.label for each in figures)
    return terminal_table(
        TRACE,
        figures,
        "Zeros of real training steps, and what skipping them gains",
        "A, W, G: zero activations, weights, output gradients; idle: MACs with a zero operand\n"
        "FP, BP, WU: forward, input gradient, weight gradient; compute: all, without DRAM; step: all, with DRAM\n"
        "tensordash over tensorcore; spartann (BP and WU) over itself without skipping; acf-512 over tensorcore-512\n"
        f"{labels}",
    )


def _of_trace(column: "Column[TraceFigures]") -> "Column[EpochFigures]":
    """The same column over the trace of an epoch."""
    return Column(column.key, column.title, lambda point: column.value(point.figures), column.format)


EPOCH: "tuple[Column[EpochFigures], ...]" = (
    Column("epoch", "epochs", lambda point: point.epoch, NUMBER),
    Column("loss", "loss", lambda point: point.loss, Format("{:.2f}".format)),
    Column("accuracy", "accuracy", lambda point: point.accuracy, SHARE),
    Column("zero_activations", "A", lambda point: point.figures.zeros.get("activation", 0.0), SHARE),
    Column("zero_gradients", "G", lambda point: point.figures.zeros.get("gradient", 0.0), SHARE),
    *(_of_trace(column) for column in SPEEDUPS),
)
"""`acf epochs`: one row for each captured epoch."""


def epoch_table(points: "Sequence[EpochFigures]") -> Table:
    """Zeros and speedups of steps captured over the epochs of one training run."""
    return terminal_table(
        EPOCH,
        points,
        "What skipping zeros gains as training goes on",
        f"A, G: zero activations and output gradients; accuracy: on held-out examples\n{points[-1].figures.label}",
    )
