"""What several commands share: options, and ways to print and to keep figures."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acf.records import record_text, write_record

if TYPE_CHECKING:
    from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write the table as CSV, every column in SI units.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", envvar="ACF_DATA", help="Folder of the data sets; without it: scikit-learn's digits."),
]
DataSet = Annotated[str, typer.Option(help="Which set of the folder; default: the first that fits.")]


def split_list(texts: Iterable[str]) -> list[str]:
    """The parts of options that may be repeated or hold several parts with commas between, each once.

    >>> split_list(["sat,tensordash", "acf-512", "sat"])
    ['sat', 'tensordash', 'acf-512']
    """
    parts = (part.strip() for text in texts for part in text.split(","))
    return list(dict.fromkeys(part for part in parts if part))


def print_json(kind: str, values: Any) -> None:
    """Print the record of a command for programs; ``kind`` is one of `acf.records.KINDS`."""
    typer.echo(record_text(kind, values), nl=False)


def print_outcome(kind: str, values: Any, table: "Table", as_json: bool) -> None:
    """Print the outcome of a command: the record of ``values`` as JSON for programs, or ``table`` for people."""
    from acf.terminal import show

    if as_json:
        print_json(kind, values)
    else:
        show(table)


def save_json(kind: str, values: Any, path: Path | None) -> None:
    """Write the record of a command to a file, where one is named."""
    if path is not None:
        write_record(path, kind, values)
