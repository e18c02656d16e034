"""TOML that would take all time or all of the stack is refused in one line, and everything else is read."""

import pytest

from acf.sim.registry import CONFIGS
from acf.toml import MOST_CHARACTERS, parse_toml


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "{a=" * 50_000, "nested too deeply"),
        ("a" + ".a" * 200_000 + " = 1", "32 dots or more"),
        ("[a" + '."a"' * 50_000 + "]", "32 dots or more"),
        ("a = {a" + " . 'a'" * 50_000 + " = 1}", "32 dots or more"),
        ("a = " + "9" * 100_000, "4300 digits"),
        ("#" * (MOST_CHARACTERS + 1), "characters, and 1048576 are read"),
        ("a = ", "Invalid value"),
    ],
    ids=["lists", "tables", "dots", "header", "inline", "digits", "length", "syntax"],
)
def test_what_no_file_needs_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        parse_toml(text)
    assert len(str(refused.value).splitlines()) == 1


def test_long_lists_and_words_are_read() -> None:
    numbers = ", ".join(f"{place}.5" for place in range(1000))
    assert len(parse_toml(f"a = [{numbers}]")["a"]) == 1000
    assert parse_toml(f"note = '{'x' * 100_000}'")["note"] == "x" * 100_000
    assert parse_toml("a.b.c = 1") == {"a": {"b": {"c": 1}}}


def test_every_shipped_machine_is_read() -> None:
    assert all(parse_toml(path.read_text()) for path in CONFIGS.glob("*.toml"))
