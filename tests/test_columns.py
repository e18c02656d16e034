"""One column of a registry reaches terminal, page, Markdown and JSON with the same name and value."""

from dataclasses import dataclass
from io import StringIO

from rich.console import Console

from acf.columns import (
    RATIO,
    SHARE,
    Column,
    Format,
    markdown_table,
    page_table,
    records,
    shown_in,
    si_format,
    terminal_table,
)


@dataclass(frozen=True)
class Run:
    """A row."""

    name: str
    energy_j: float | None
    speedup: float


RUNS = [Run("dense [rtl]", 2.5e-4, 1.0), Run("sparse", None, 2.0)]
COLUMNS: tuple[Column[Run], ...] = (
    Column("name", "run", lambda run: run.name, names_row=True, style=lambda _: "green"),
    Column("energy_j", "energy", lambda run: run.energy_j, si_format("J"), "joules of one step"),
    Column("speedup", "speedup", lambda run: run.speedup, RATIO, places=("page",)),
)


def printed(columns: tuple[Column[Run], ...], **options: object) -> str:
    output = StringIO()
    table = terminal_table(columns, RUNS, "runs [rtl]", "of acf[rtl]", **options)  # type: ignore[arg-type]
    Console(file=output, width=80).print(table)
    return output.getvalue()


def test_a_terminal_shows_titles_and_plain_values() -> None:
    text = printed(COLUMNS)
    assert all(word in text for word in ("run", "energy", "250 uJ", "2.00x"))


def test_square_brackets_are_text_and_not_markup() -> None:
    assert "dense [rtl]" in printed(COLUMNS)
    assert "runs [rtl]" in printed(COLUMNS)
    assert "of acf[rtl]" in printed(COLUMNS)


def test_what_a_terminal_would_obey_is_shown() -> None:
    output = StringIO()
    table = terminal_table(COLUMNS, [Run("conv\x1b[2J", None, 1.0)], "title\x1b[31m", "caption\u202e")
    Console(file=output, width=80).print(table)
    shown = output.getvalue()
    assert all(text in shown for text in ("conv\\x1b[2J", "title\\x1b[31m", "caption\\u202e"))
    assert "\x1b" not in shown


def test_a_rule_separates_sections() -> None:
    assert printed(COLUMNS, section=lambda run: run.name).count("├") == 1
    assert printed(COLUMNS).count("├") == 0


def test_a_page_gets_the_same_columns_with_typographic_signs() -> None:
    table = page_table(COLUMNS, RUNS)
    assert [column.page_title for column in table.columns] == ["Run", "Energy", "Speedup"]
    assert [column.page_class for column in table.columns] == ["", "number", "number"]
    assert table.rows == (("dense [rtl]", "250 µJ", "1.00 ×"), ("sparse", "–", "2.00 ×"))  # noqa: RUF001


def test_markdown_has_the_texts_of_the_terminal() -> None:
    assert markdown_table(COLUMNS, RUNS).splitlines()[2:] == [
        "| dense [rtl] | 250 uJ | 1.00x |",
        "| sparse | - | 2.00x |",
    ]


def test_json_has_the_values_themselves_by_key() -> None:
    assert records(COLUMNS, RUNS)[0] == {"name": "dense [rtl]", "energy_j": 2.5e-4, "speedup": 1.0}


def test_a_place_shows_its_own_columns_and_those_of_every_place() -> None:
    assert [column.key for column in shown_in("terminal", COLUMNS)] == ["name", "energy_j"]
    assert [column.key for column in shown_in("page", COLUMNS)] == ["name", "energy_j", "speedup"]


def test_an_absent_value_may_be_written_as_nothing() -> None:
    assert Format(SHARE.plain, absent="").text(None) == ""
