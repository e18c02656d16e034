"""Writing records: the envelope around the figures of a command, and its JSON text."""

import json
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from acf.files import write_whole
from acf.records.kinds import KINDS, SCHEMA
from acf.records.provenance import command_line, commit_of, machine
from acf.version import __version__

LINE = 118
"""Lists and objects that fit into so many characters stand on one line."""


def envelope(kind: str, data: Any) -> dict[str, Any]:
    """``data`` with the fields that say what it is and where it comes from."""
    if kind not in KINDS:
        raise KeyError(f"record kind {kind!r} is not in acf.records.KINDS; add it there")
    return {
        "kind": kind,
        "schema": SCHEMA,
        "command": command_line(),
        "acf": __version__,
        "commit": commit_of(Path(__file__).parents[1]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "data": data,
    }


def record_text(kind: str, data: Any) -> str:
    """The record as JSON. What is not finite becomes null, since JSON has no NaN."""
    return json_text(_finite(envelope(kind, data))) + "\n"


def write_record(path: Path, kind: str, data: Any) -> None:
    """Write the record to ``path`` atomically."""
    write_whole(path, record_text(kind, data).encode())


def json_text(value: Any, indent: str = "") -> str:
    """JSON for programs and people: what is short, and every list of plain values, stands on one line.

    >>> print(json_text({"losses": [0.5, 0.25], "label": "x" * 100}))
    {
      "losses": [0.5, 0.25],
      "label": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    }
    """
    flat = json.dumps(value, allow_nan=False)
    is_plain_list = isinstance(value, list) and not any(isinstance(each, dict | list) for each in value)
    if not isinstance(value, dict | list) or is_plain_list or len(indent) + len(flat) <= LINE:
        return flat
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(key))}: {json_text(each, deeper)}" for key, each in value.items()]
    else:
        parts = [json_text(each, deeper) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{closing}"


def _finite(value: Any) -> Any:
    """``value`` with lists for tuples, and None for every float that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
