"""Showing things in a terminal: tables, and a progress bar."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


def show(table: Table) -> None:
    """Print a table; at least 120 columns wide where the output is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 120))
    console.print(table)


@contextmanager
def working(what: str, visible: bool) -> Iterator[None]:
    """A sign of life and the elapsed time, for work whose length is not known; where `progress` would stand."""
    console = Console(stderr=True)
    if not visible or not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def progress(visible: bool) -> Iterator[Callable[[str, float], None]]:
    """A progress bar with the remaining time; yields the function to call with a description and the share finished.

    It stands on stderr, and only where that is a terminal.
    """
    console = Console(stderr=True)
    if not visible or not console.is_terminal:  # a bar of rich 13 that is disabled still prints an empty line
        yield lambda what, share: None
        return
    bar = Progress(
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=console,
    )
    with bar:
        task = bar.add_task("load", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
        bar.update(task, completed=1.0)
