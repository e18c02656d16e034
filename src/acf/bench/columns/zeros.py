"""Columns of `acf bench zeros`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from acf.bench.columns.formats import WHOLE_PERCENT
from acf.columns import Column, Format, terminal_table

if TYPE_CHECKING:
    from acf.bench.zeros.measure import MeasuredZeros, Spread

_SPREAD = Format(lambda spread: f"{100 * spread.mean:.1f} ± {100 * spread.deviation:.1f} %", absent="")


def _whole(operand: str) -> "Callable[[MeasuredZeros], Spread | None]":
    return lambda measured: measured.whole.get(operand)


ZEROS: "tuple[Column[MeasuredZeros], ...]" = (
    Column("network", "network", lambda measured: measured.network),
    Column("sparsity", "blocks absent", lambda measured: measured.sparsity, WHOLE_PERCENT),
    Column("gradient_target", "DTS", lambda measured: measured.gradient_target or None, Format(str, absent="")),
    Column("loss", "loss", lambda measured: sum(measured.losses) / len(measured.losses), Format("{:.2f}".format)),
    Column("activations", "A", _whole("activations"), _SPREAD, "zeros of all activations, mean and sample deviation"),
    Column("gradients", "G", _whole("gradients"), _SPREAD, "zeros of all output gradients"),
    Column("weights", "W", _whole("weights"), _SPREAD, "zeros of all weights"),
)
"""`acf bench zeros`: one row for each variant of a network."""


def zeros_table(measured: "Sequence[MeasuredZeros]") -> Table:
    """Zeros of all elements of a captured step, over seeds."""
    title = f"zeros of a captured step, {len(measured[0].losses)} seeds; {measured[0].data}"
    return terminal_table(ZEROS, measured, title, "every layer: --json or --out")
