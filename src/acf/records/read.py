"""Reading records: today's, and those that earlier versions wrote without an envelope."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from acf.errors import AcfError, ReportError
from acf.records.kinds import KINDS, SCHEMA

REMEDY = "pass JSON that a command of acf wrote with --json or --out"
ENVELOPE = ("command", "acf", "commit", "date", "machine")
"""Fields of a record that say where it comes from."""

EARLIER: dict[str, frozenset[str]] = {
    "results": frozenset({"ops", "architecture"}),
    "training-run": frozenset({"losses", "test_accuracies"}),
    "ablations": frozenset({"ablation", "points"}),
    "demo": frozenset({"records", "results"}),
    "training": frozenset({"task", "summaries", "runs"}),
    "accuracy": frozenset({"spec", "summaries", "runs"}),
    "sweep": frozenset({"objectives", "points", "importance"}),
    "kernels": frozenset({"ceilings", "layers"}),
    "fabric": frozenset({"network", "step_seconds", "lost"}),
    "traces": frozenset({"dense_macs", "zeros"}),
    "doctor": frozenset({"part", "consequence"}),
    "reproduce": frozenset({"rows", "command", "commit"}),
}
"""Keys that a record without an envelope has, by kind. An ``ablation`` may stand alone or in a list."""

OF_THE_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading and drawing raise where a record holds values of other kinds than its command writes."""

FIGURES = ("date", "machine", "rows", "runs", "records", "steps", "variants", "layers")
"""Keys of other early records: one of them is enough to show the record as plain tables."""


@dataclass(frozen=True)
class Record:
    """A record as read: ``kind`` is "" for an early record that no kind describes. ``source`` names its file."""

    kind: str
    data: Any
    source: str
    origin: dict[str, str] = field(default_factory=dict)


def read_record(path: Path) -> Record:
    """The record in a file, or in what a pipe gives."""
    try:
        is_device = path.is_char_device()  # which may give bytes without end
        values = None if is_device else parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read ({error.strerror}); {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path} is not JSON ({error}); {REMEDY}") from error
    if is_device:
        raise ReportError(f"{path} is a device, not a file; {REMEDY}")
    return parse_record(values, str(path))


@contextmanager
def values_of(source: str) -> Iterator[None]:
    """One line for what values of ``source`` that no command writes, such as a run of 0 seconds, make of a table."""
    try:
        yield
    except AcfError:
        raise
    except OF_THE_VALUES as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReportError(
            f"{source} has values that no command of acf writes ({reason}); write it again with --json or --out"
        ) from error


def parse_json(text: str | bytes) -> Any:
    """The values of a JSON text; NaN, Infinity and numbers that no float holds, which JSON does not have, are refused.

    >>> parse_json('{"losses": [0.5]}')
    {'losses': [0.5]}
    """
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def parse_record(values: Any, source: str) -> Record:
    """The record that ``values`` are, with its kind found by its keys where it has no envelope."""
    if not is_envelope(values):
        kind = _earlier_kind(values, source)
        if not kind and isinstance(values, dict) and isinstance(values.get("records"), list) and values["records"]:
            kind, values = _earlier_kind(values["records"], source), values["records"]
        return Record(kind, values, source)
    if values["schema"] != SCHEMA:
        raise ReportError(
            f"{source} has schema {values['schema']!r}, this version of acf reads {SCHEMA}; read it with acf "
            f"{values.get('acf', 'of its own version')}, or write it again"
        )
    if values["kind"] not in KINDS:
        raise ReportError(f"{source} is of kind {values['kind']!r}, which is not one of {', '.join(KINDS)}; {REMEDY}")
    origin = {name: str(values[name]) for name in ENVELOPE if values.get(name)}
    return Record(values["kind"], values["data"], source, origin)


def data_of(values: Any) -> Any:
    """The figures of a record, with or without its envelope.

    >>> data_of({"kind": "fabric", "schema": 1, "data": [1]}), data_of([1])
    ([1], [1])
    """
    return values["data"] if is_envelope(values) else values


def is_envelope(values: Any) -> bool:
    """Whether ``values`` are a record with its envelope."""
    return isinstance(values, dict) and {"kind", "schema", "data"} <= set(values)


def _earlier_kind(values: Any, source: str) -> str:
    """The kind of an early record, by its keys or those of its first entry; "" where only plain tables will do."""
    first = values[0] if isinstance(values, list) and values else values
    if isinstance(first, dict):
        for kind, keys in EARLIER.items():
            if keys <= set(first):
                return kind
        inner = [first, *(each for each in first.values() if isinstance(each, dict))]
        if any(key in each for each in inner for key in FIGURES):
            return ""
    held = f"the keys {', '.join(list(first)[:4])}" if isinstance(first, dict) else repr(values)[:40]
    raise ReportError(f"{source} holds {held}, which is no record of acf; {REMEDY}")
