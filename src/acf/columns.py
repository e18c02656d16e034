"""Columns of tables: one `Column` gives a figure's name, value and format to terminals, HTML pages, Markdown and JSON.

Each kind of row has one tuple of columns, its registry. A new column is one entry there.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from io import StringIO
from math import isfinite
from typing import Any, Generic, TypeVar

from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from acf.printable import printable
from acf.units import binary_bytes, si

Row = TypeVar("Row")

PAGE, TERMINAL, CSV = "page", "terminal", "csv"
"""Where a kind of row is usually shown; a CSV file and JSON have every column, wherever else it is shown."""


@dataclass(frozen=True)
class Format:
    """How a value is written: ``plain`` for terminals and Markdown, ``page`` for HTML where it differs.

    ``absent`` stands for None. Numbers are aligned to the right.
    """

    plain: Callable[[Any], str]
    page: Callable[[Any], str] | None = None
    absent: str = "-"
    is_number: bool = True

    def text(self, value: Any) -> str:
        """The value in a terminal."""
        return self.absent if value is None else self.plain(value)

    def page_text(self, value: Any) -> str:
        """The value on a page.

        >>> SHARE.page_text(0.904), RATIO.page_text(2.0), COUNT.page_text(None)
        ('90.4 %', '2.00 ×', '–')
        """
        if value is None:
            return self.absent.replace("-", "\N{EN DASH}")
        return (self.page or self.plain)(value)


def typeset(plain: Callable[[Any], str], sign: str, page_sign: str) -> Format:
    """A number that a page writes with ``page_sign`` in place of ``sign``."""
    return Format(plain, lambda value: plain(value).replace(sign, page_sign))


def si_format(unit: str) -> Format:
    """Three digits and an SI prefix before ``unit``."""
    return typeset(lambda value: si(value, unit), " u", " µ")


TEXT = Format(str, is_number=False)
COUNT = Format(lambda value: f"{value:,}")
SHARE = typeset(lambda value: f"{value:.1%}", "%", " %")
ROUND_SHARE = typeset(lambda value: f"{100 * value:.4g}%", "%", " %")
RATIO = typeset(lambda value: f"{value:.2f}x", "x", " \N{MULTIPLICATION SIGN}")
BYTES = Format(binary_bytes)


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table over rows of type ``Row``.

    ``key`` names the value in JSON and carries its unit (``energy_j``); ``title`` is the heading for people, and
    ``meaning`` explains it in one line. ``places`` are the tables that show it; empty: all. ``style`` is the colour of
    a cell in a terminal. On a page, ``css`` is the class of the cells and ``names_row`` marks the heading of each row.
    """

    key: str
    title: str
    value: Callable[[Row], Any]
    format: Format = TEXT
    meaning: str = ""
    places: tuple[str, ...] = ()
    style: Callable[[Row], str] | None = None
    css: str = ""
    names_row: bool = False

    def text(self, row: Row) -> str:
        """The cell of ``row`` in a terminal."""
        return self.format.text(self.value(row))

    @property
    def page_title(self) -> str:
        """The heading on a page."""
        return self.title[:1].upper() + self.title[1:]

    @property
    def page_class(self) -> str:
        """The class of the cells on a page."""
        return "number" if self.format.is_number and not self.css else self.css


@dataclass(frozen=True)
class PageTable:
    """A table for the HTML template: the columns, and every cell row by row as text and, if it is one, as a number."""

    columns: tuple[Column[Any], ...]
    rows: tuple[tuple[str, ...], ...]
    values: tuple[tuple[float | None, ...], ...]


def shown_in(place: str, columns: Iterable[Column[Row]]) -> tuple[Column[Row], ...]:
    """The columns that the table ``place`` shows."""
    return tuple(column for column in columns if not column.places or place in column.places)


def terminal_table(
    columns: Sequence[Column[Row]],
    rows: Iterable[Row],
    title: str,
    caption: str = "",
    section: Callable[[Row], object] = lambda _: None,
) -> Table:
    """A table for the terminal, with a rule wherever ``section`` changes from one row to the next."""
    table = Table(title=escape(printable(title)), caption=escape(printable(caption)) or None)
    for column in columns:
        justify: JustifyMethod = "right" if column.format.is_number else "left"
        title = escape(printable(column.title))
        table.add_column(title, justify=justify, overflow="fold")  # a cut name may mean two rows
    last: object = None
    for number, row in enumerate(rows):
        if number and section(row) != last:
            table.add_section()
        last = section(row)
        cells = [(printable(column.text(row)), column.style(row) if column.style else "") for column in columns]
        table.add_row(*(Text(*cell) for cell in cells))
    return table


def page_table(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> PageTable:
    """A table for the HTML template."""
    values = [[column.value(row) for column in columns] for row in rows]
    return PageTable(
        tuple(columns),
        tuple(tuple(c.format.page_text(value) for c, value in zip(columns, row, strict=True)) for row in values),
        tuple(tuple(_number(value) for value in row) for row in values),
    )


def _number(value: Any) -> float | None:
    """The value as a number, for sorting and CSV; None where it is none."""
    return float(f"{float(value):.6g}") if hasattr(value, "__float__") and isfinite(float(value)) else None


def markdown_table(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [[column.title for column in columns], *([column.text(row) for column in columns] for row in rows)]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|{'---|' * len(columns)}", *body]) + "\n"


def records(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The values themselves by key, for JSON."""
    return [{column.key: _plain_value(column.value(row)) for column in columns} for row in rows]


def csv_text(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> str:
    """A CSV table of the values themselves under their keys; what is absent is an empty cell."""
    written = StringIO()
    writer = csv.DictWriter(written, [column.key for column in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(columns, rows))
    return written.getvalue()


def _plain_value(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
