"""A comparison as a table: for the terminal, and as Markdown."""

from rich.table import Table

from acf.bench.accuracy.comparison import Comparison, MethodSummary

_COLUMNS = ("method", "seeds", "accuracy", "to dense", "weights absent", "density over the run", "dropped again")


def accuracy_table(comparison: Comparison) -> Table:
    """Accuracy of every method with its deviation, and the difference to dense training."""
    spec = comparison.spec
    table = Table(title=f"{spec.network}, width {spec.width}, {spec.epochs} epochs of {comparison.data}")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right")
    for summary in comparison.summaries():
        table.add_row(*_cells(summary))
    return table


def markdown(comparison: Comparison) -> str:
    """The same as Markdown, with machine, date and commands."""
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}"]
    lines += [f"| {' | '.join(_cells(summary))} |" for summary in comparison.summaries()]
    commands = "\n".join(f"    {command}" for command in comparison.commands)
    return f"{comparison.data}; {comparison.machine}; {comparison.date}.\n\n{commands}\n\n" + "\n".join(lines) + "\n"


def _cells(summary: MethodSummary) -> tuple[str, ...]:
    return (
        summary.method,
        str(summary.seeds),
        f"{summary.accuracy:.2f} ± {summary.deviation:.2f} %",
        "" if summary.to_dense is None else f"{summary.to_dense:+.2f}",
        f"{summary.sparsity:.1%}",
        f"{summary.mean_density:.1%}",
        "" if summary.dropped_again is None else f"{summary.dropped_again:.0%}",
    )
