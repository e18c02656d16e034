"""Texts from files, such as labels of traces and names of layers, as a terminal may show them."""

import re

_OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal does not show but obeys: control characters, and marks that turn the direction of writing."""


def printable(text: str) -> str:
    r"""``text`` with escapes in place of what a terminal would obey; ends of lines stay.

    A label that comes with a file could otherwise clear the screen, or write over what stands there.

    >>> print(printable("layer\x1b[2J"))
    layer\x1b[2J
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_line(text: str) -> str:
    r"""`printable`, with ends of lines as escapes, too: a name of a file may hold one.

    >>> print(printable_line("a\nb"))
    a\nb
    """
    return printable(text).replace("\n", "\\n")
