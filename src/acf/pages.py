"""What every kind of record becomes on the page of `acf report`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from acf.columns import Column, page_table
from acf.errors import AcfError, ReportError
from acf.metrics import AblationRecord, TrainingRecord
from acf.records import KINDS, Record
from acf.report.extra import ExtraSection, ExtraTable
from acf.report.plain import plain_section
from acf.sim.result import Result


@dataclass(frozen=True)
class Content:
    """Parts of a page; those of several records are added."""

    results: tuple[Result, ...] = ()
    training: tuple[TrainingRecord, ...] = ()
    ablations: tuple[AblationRecord, ...] = ()
    sections: tuple[ExtraSection, ...] = ()

    def __add__(self, other: "Content") -> "Content":
        return Content(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


ENTRIES: dict[str, Callable[[Any], Content]] = {
    "ops": lambda entry: Content(results=(Result.from_dict(entry),)),
    "losses": lambda entry: Content(training=(TrainingRecord.from_dict(entry),)),
    "ablation": lambda entry: Content(ablations=(AblationRecord.from_dict(entry),)),
}
"""By a key that only they have: entries of a list that stand beside each other on one page."""


def content_of(record: Record) -> Content:
    """The parts of the page that ``record`` gives."""
    try:
        return PAGES.get(record.kind, _plain)(record)
    except AcfError as error:
        raise ReportError(f"{record.source}: {error}") from error


def origins_section(records: Sequence[Record]) -> ExtraSection:
    """Where the records of a page come from."""
    text = "The commands whose records this page shows, with version, commit, date and machine."
    return ExtraSection("Records", text, tables=(ExtraTable("Records", page_table(ORIGIN, records)),))


def _of(name: str) -> Callable[[Record], str]:
    return lambda record: record.origin.get(name, "")


ORIGIN: tuple[Column[Record], ...] = (
    Column("source", "file", lambda record: Path(record.source).name, names_row=True),
    Column("kind", "kind", lambda record: record.kind or "early record"),
    *(Column(name, name, _of(name)) for name in ("command", "acf", "commit", "date", "machine")),
)
"""The table of records: one row for each file."""


def _entries(record: Record) -> Content:
    """Results, training runs and ablations, alone or in lists."""
    return sum(map(_entry, _listed(record.data)), Content())


def _entry(entry: Any) -> Content:
    make = next((make for key, make in ENTRIES.items() if isinstance(entry, dict) and key in entry), None)
    if make is None:
        held = f"the keys {', '.join(list(entry)[:4])}" if isinstance(entry, dict) else repr(entry)[:40]
        raise ReportError(f"an entry with {held} is no result, training run or ablation; write the record again")
    return make(entry)


def _listed(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        yield from data
    else:
        yield data


def _demo(record: Record) -> Content:
    return sum(map(_entry, [*record.data.get("records", []), *record.data.get("results", [])]), Content())


def _training(record: Record) -> Content:
    from acf.bench.training.page import training_section
    from acf.bench.training.record import comparison_from_values

    return Content(sections=(training_section(comparison_from_values(record.data, record.source)),))


def _sweep(record: Record) -> Content:
    from acf.sweep.page import sweep_section
    from acf.sweep.values import sweep_from_values

    return Content(sections=(sweep_section(sweep_from_values(record.data)),))


def _plain(record: Record) -> Content:
    """Tables of everything; ablations that an early record holds beside other figures become ablations."""
    data, known = record.data, Content()
    if not record.kind and isinstance(data, dict):
        inside = {key: value for key, value in data.items() if key in ("records", "results") and _is_known(value)}
        known = sum((_entry(each) for value in inside.values() for each in value), known)
        data = {key: value for key, value in data.items() if key not in inside}
    name = Path(record.source).stem
    told = KINDS[record.kind] if record.kind else None
    text = f"{told.command}: {told.data.replace('`', '')}." if told else "A record of an earlier version."
    return known + Content(sections=(plain_section(name, text, data),))


def _is_known(value: Any) -> bool:
    known = [isinstance(each, dict) and bool(set(ENTRIES) & set(each)) for each in _listed(value)]
    return bool(known) and all(known)


PAGES: dict[str, Callable[[Record], Content]] = {
    "results": _entries,
    "comparison": _entries,
    "training-run": _entries,
    "ablations": _entries,
    "demo": _demo,
    "training": _training,
    "sweep": _sweep,
}
"""Kinds with a page of their own; every other kind becomes tables."""
