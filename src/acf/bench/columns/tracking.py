"""Columns of `acf bench tracking`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from acf.columns import Column, Format, terminal_table

if TYPE_CHECKING:
    from acf.bench.tracking.recording import Tracked

_POINTS = Format(lambda share: f"{100 * share:.1f} pp")

TRACKING: "tuple[Column[Tracked], ...]" = (
    Column("method", "threshold", lambda run: run.method),
    Column("mean_distance", "mean distance", lambda run: run.mean_miss, _POINTS),
    Column("worst_layer", "worst layer", lambda run: run.worst_layer_miss, _POINTS),
    Column("off_at_the_end", "off at the end", lambda run: run.drift, Format(lambda share: f"{100 * share:+.1f} pp")),
    Column("accuracy", "accuracy", lambda run: run.accuracy, Format("{:.2f} %".format)),
)
"""`acf bench tracking`: one row for each threshold rule, distances from the target in percentage points."""


def tracking_table(runs: "Sequence[Tracked]") -> Table:
    """Distances of the achieved gradient sparsity from its target, and accuracies."""
    return terminal_table(TRACKING, runs, f"achieved gradient sparsity, target {runs[0].target:.0%}")
