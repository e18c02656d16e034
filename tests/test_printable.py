"""What a file brings is shown by a terminal and never obeyed."""

import pytest

from acf.printable import printable, printable_line


@pytest.mark.parametrize("text", ["\x1b[2J", "\x1b]0;title\x07", "\r", "\b", "\x9b31m", "\u202e", "\u2066", "\0", "\t"])
def test_what_a_terminal_would_obey_becomes_an_escape(text: str) -> None:
    shown = printable(f"before{text}after")
    assert shown.isprintable()
    assert shown.startswith("before\\")


@pytest.mark.parametrize("text", ["layer1.0.conv", "[red]x[/red]", "größer", "two\nlines", "\udcff", "日本語"])
def test_everything_else_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_an_error_stays_printable_line_whatever_the_name_of_a_file_is() -> None:
    assert printable_line("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
