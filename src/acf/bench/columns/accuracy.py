"""Columns of `acf bench accuracy`."""

from typing import TYPE_CHECKING

from rich.table import Table

from acf.bench.columns.formats import NUMBER
from acf.columns import SHARE, Column, Format, markdown_table, terminal_table

if TYPE_CHECKING:
    from acf.bench.accuracy.comparison import Comparison, MethodSummary

ACCURACY: "tuple[Column[MethodSummary], ...]" = (
    Column("method", "method", lambda summary: summary.method),
    Column("seeds", "seeds", lambda summary: summary.seeds, NUMBER),
    Column(
        "accuracy",
        "accuracy",
        lambda summary: (summary.accuracy, summary.deviation),
        Format(lambda spread: "{:.2f} ± {:.2f} %".format(*spread)),
        "mean and sample deviation over seeds, in per cent of the tested images",
    ),
    Column("to_dense", "to dense", lambda summary: summary.to_dense, Format("{:+.2f}".format, absent="")),
    Column("sparsity", "weights absent", lambda summary: summary.sparsity, SHARE),
    Column("mean_density", "density over the run", lambda summary: summary.mean_density, SHARE),
    Column("dropped_again", "dropped again", lambda summary: summary.dropped_again, Format("{:.0%}".format, absent="")),
)
"""`acf bench accuracy`: one row for each method."""


def accuracy_table(comparison: "Comparison") -> Table:
    """Accuracy of every method with its deviation over seeds, and the difference to dense training."""
    spec = comparison.spec
    title = f"{spec.network}, width {spec.width}, {spec.epochs} epochs of {comparison.data}"
    return terminal_table(ACCURACY, comparison.summaries(), title)


def accuracy_markdown(comparison: "Comparison") -> str:
    """The same as Markdown, with machine, date and commands."""
    commands = "\n".join(f"    {command}" for command in comparison.commands)
    heading = f"{comparison.data}; {comparison.machine}; {comparison.date}."
    return f"{heading}\n\n{commands}\n\n{markdown_table(ACCURACY, comparison.summaries())}"
