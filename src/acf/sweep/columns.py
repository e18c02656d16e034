"""The columns of a sweep's points and of its parameters, for terminal tables, the report, CSV and JSON alike."""

from typing import Any

from acf.columns import BYTES, COUNT, CSV, PAGE, SHARE, Column, Format, si_format
from acf.sweep.front import ranked
from acf.sweep.run import SweepRecord, SweepRow

_GENERAL = Format("{:.4g}".format)
_KNOWN: dict[str, tuple[str, Format]] = {
    "step_seconds": ("whole step", si_format("s")),
    "energy_j": ("energy", si_format("J")),
    "area_mm2": ("mm2", Format("{:.4g}".format)),
    "step_utilization": ("U", SHARE),
    "dram_bytes": ("DRAM", Format(lambda value: BYTES.plain(int(value)))),
    "macs_per_cycle": ("MACs per cycle", Format(lambda value: COUNT.plain(int(value)))),
    "accuracy": ("accuracy", SHARE),
}
"""Titles and formats of figures; others stand under their own name."""

_FAILURE: Column[SweepRow] = Column(
    "failure",
    "failed",
    lambda row: row.attempt.failure or None,
    Format(str, absent="", is_number=False),
    "why the point has no figures",
    style=lambda _: "red",
)


def point_columns(record: SweepRecord) -> tuple[Column[SweepRow], ...]:
    """Parameters, figures, whether the point is on the Pareto front, and the reason of failed ones."""
    figures = dict.fromkeys(
        (
            *(objective.name for objective in record.objectives),
            *(name for row in record.rows for name in row.attempt.figures or {}),
        )
    )
    return (
        *(_parameter(name) for name in record.parameters),
        *(_figure(name) for name in figures),
        Column(
            "on_front",
            "front",
            lambda row: row.on_front,
            Format(lambda on_front: "*" if on_front else "", is_number=False),
            "no other point is at least as good in every objective and better in one",
        ),
        *([_FAILURE] if record.failed else []),
    )


def importance_columns(record: SweepRecord) -> tuple[Column[str], ...]:
    """The parameters, and the share of the variance of every objective that each explains."""
    shares = [_share(record, objective.name) for objective in record.objectives]
    return (Column("parameter", "parameter", lambda name: name, names_row=True), *shares)


def importance_rows(record: SweepRecord) -> list[str]:
    """The parameters, the most important first."""
    return ranked(record.importance)


def _parameter(name: str) -> Column[SweepRow]:
    return Column(name, name, lambda row: row.attempt.changes.get(name), Format(_plain))


def _figure(name: str) -> Column[SweepRow]:
    title, shown = _KNOWN.get(name, (name, _GENERAL))
    places = (CSV, PAGE) if name in ("dram_bytes", "macs_per_cycle") else ()
    return Column(name, title, lambda row: (row.attempt.figures or {}).get(name), shown, places=places)


def _share(record: SweepRecord, objective: str) -> Column[str]:
    title = _KNOWN.get(objective, (objective, _GENERAL))[0]
    return Column(
        f"{objective}_share",
        title,
        lambda name: record.importance[name].get(objective),
        SHARE,
        "share of the figure's variance that the parameter alone explains",
    )


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
