"""Any record as readable tables, for kinds that have no page of their own.

A list of objects is a table, an object in a cell becomes columns (``zeros: weight``), and a list of objects in a cell
becomes a table of its own. What remains are single values, which stand in a first table of names and values.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from acf.columns import BYTES, COUNT, RATIO, TEXT, Column, Format, page_table, si_format
from acf.report.extra import ExtraSection, ExtraTable

MOST_ROWS = 500
"""Rows of a table on the page; the record itself has all of them."""
MOST_TABLES = 40
"""Tables of a section; an object that holds more is cut, and the section says so."""
LISTED = 8
"""Plain values of a list that stand in a cell; of a longer list its length and ends are given."""

Row = Mapping[str, Any]

_GENERAL = Format("{:.4g}".format)
_BY_SUFFIX: dict[str, Format] = {
    "seconds": si_format("s"),
    "_s": si_format("s"),
    "joules": si_format("J"),
    "_j": si_format("J"),
    "_hz": si_format("Hz"),
    "bytes": BYTES,
    "ratio": RATIO,
    "speedup": RATIO,
}
"""How numbers are written, by the end of their key; rates such as ``examples_per_s`` are plain numbers."""


def plain_section(title: str, text: str, data: Any) -> ExtraSection:
    """All of ``data`` as tables, the single values first."""
    tables = list(_tables("", data))
    left_out = len(tables) - MOST_TABLES
    if left_out > 0:
        text = f"{text} {left_out} more tables are not shown; the record has them."
    return ExtraSection(title, text, tables=tuple(tables[:MOST_TABLES]))


def _tables(name: str, data: Any) -> Iterator[ExtraTable]:
    """The tables of a value that bears ``name`` in the record."""
    if isinstance(data, Mapping):
        yield from _object_tables(name, data)
    elif _is_list_of_objects(data):
        yield from _list_tables(name, data)
    elif isinstance(data, list | tuple):
        yield _table(name, [{"value": value} for value in data])
    else:
        yield _table(name, [{"value": data}])


def _object_tables(name: str, data: Row) -> Iterator[ExtraTable]:
    if _are_alike(data):
        yield from _list_tables(name, [{"name": key} | dict(value) for key, value in data.items()])
        return
    single = [{"name": key, "value": _cell(value)} for key, value in _flat(data).items() if not _is_table(value)]
    if single:
        yield _table(name or "values", single)
    for key, value in _flat(data).items():
        if _is_table(value):
            yield from _tables(_joined(name, key), value)


def _list_tables(name: str, entries: Sequence[Row]) -> Iterator[ExtraTable]:
    """The rows themselves, then one table for each list of objects that rows hold, with the first cell of its row."""
    rows = [_flat(entry) for entry in entries]
    plain = [{key: value for key, value in row.items() if not _is_table(value)} for row in rows]
    yield _table(name or "rows", plain)
    inner = dict.fromkeys(key for row in rows for key, value in row.items() if _is_table(value))
    for key in inner:
        nested = []
        for row, cells in zip(rows, plain, strict=True):
            first = dict(list(cells.items())[:1])
            nested += [first | _flat(each) for each in _as_rows(row.get(key, []))]
        yield from _list_tables(_joined(name, key), nested)


def _table(name: str, rows: Sequence[Row]) -> ExtraTable:
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [_column(key, rows, names_row=not index) for index, key in enumerate(keys)]
    shown = f", the first {MOST_ROWS} of {len(rows):,} rows" if len(rows) > MOST_ROWS else ""
    return ExtraTable(f"{_words(name)}{shown}", page_table(columns, rows[:MOST_ROWS]))


def _column(key: str, rows: Sequence[Row], names_row: bool) -> Column[Row]:
    return Column(key, _title(key), partial(_value, key), _format(key, rows), names_row=names_row)


def _value(key: str, row: Row) -> Any:
    return _cell(row.get(key))


def _format(key: str, rows: Sequence[Row]) -> Format:
    """Text unless every value of the column is a number."""
    values = [value for row in rows if (value := _cell(row.get(key))) is not None]
    if not values or not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return Format(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value), is_number=False)
    if "_per_" not in key:
        for suffix, known in _BY_SUFFIX.items():
            if key.endswith(suffix):
                return known
    return COUNT if all(isinstance(value, int) for value in values) else _GENERAL


def _cell(value: Any) -> Any:
    """A value as one cell: booleans in words, lists by their elements or their ends."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, list | tuple | Mapping):
        return value
    texts = [_GENERAL.plain(each) if isinstance(each, float) else TEXT.plain(each) for each in value]
    if len(texts) <= LISTED:
        return ", ".join(texts) or None
    return f"{len(texts):,} values, {texts[0]} to {texts[-1]}"


def _flat(entry: Row) -> dict[str, Any]:
    """The entry with objects inside it opened up: their keys stand behind the outer one and a colon."""
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping) and value and not _are_alike(value):
            flat |= {_joined(str(key), inner): each for inner, each in _flat(value).items()}
        else:
            flat[str(key)] = value
    return flat


def _are_alike(data: Row) -> bool:
    """Whether an object is a list by name: two or more objects with the same first key."""
    values = list(data.values())
    if len(values) < 2 or not all(isinstance(value, Mapping) and value for value in values):
        return False
    return len({next(iter(value)) for value in values}) == 1


def _is_table(value: Any) -> bool:
    return _is_list_of_objects(value) or (isinstance(value, Mapping) and _are_alike(value))


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _as_rows(value: Any) -> list[Row]:
    if isinstance(value, Mapping):
        return [{"name": key} | dict(each) for key, each in value.items()]
    return list(value)


def _joined(outer: str, inner: str) -> str:
    return f"{outer}: {inner}" if outer else inner


def _title(key: str) -> str:
    """The heading of a column; a unit that its cells carry is left out.

    >>> _title("energy_j"), _title("examples_per_s")
    ('energy', 'examples per s')
    """
    unit = next((suffix for suffix in ("_s", "_j", "_hz") if key.endswith(suffix) and "_per_" not in key), "")
    return _words(key.removesuffix(unit))


def _words(key: str) -> str:
    """A key as people write it."""
    return key.replace("_", " ")
