"""TOML from outside: machines, sweeps and settings, read in time and memory in proportion to the text."""

import re
import tomllib
from typing import Any

MOST_CHARACTERS = 1 << 20
"""Of a file; the longest that the package ships has some two thousand."""

MOST_DOTS = 32
"""Of a key; tomllib takes time by the square of them."""

_PART = r"""(?:[\w-]{1,64}|"[^"\n]{0,64}"|'[^'\n]{0,64}')"""
_DEEP_KEY = re.compile(rf"(?:{_PART}[ \t]*\.[ \t]*){{{MOST_DOTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """The values of ``text``; a `ValueError` says in one line why it is no TOML that anything here needs.

    >>> parse_toml("lanes = 4")
    {'lanes': 4}
    >>> parse_toml("lanes = " + "[" * 10_000)
    Traceback (most recent call last):
    ValueError: its lists are nested too deeply
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, and {MOST_CHARACTERS} are read")
    if _DEEP_KEY.search(text):
        raise ValueError(f"a key of it has {MOST_DOTS} dots or more")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None
