"""A sweep as plain values, for JSON, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acf.columns import records
from acf.errors import ReportError
from acf.sweep.columns import importance_columns, importance_rows, point_columns
from acf.sweep.evaluation import Attempt, Objective
from acf.sweep.run import SweepRecord, SweepRow


def sweep_values(path: Path, record: SweepRecord) -> dict[str, Any]:
    """All of a sweep: every point with its parameters and figures, the front, and the importance of parameters."""
    return {
        "sweep": record.title,
        "record": str(path),
        "objectives": [vars(objective) for objective in record.objectives],
        "parameters": list(record.parameters),
        "points": records(point_columns(record), record.rows),
        "importance": records(importance_columns(record), importance_rows(record)),
    }


def sweep_from_values(values: Mapping[str, Any]) -> SweepRecord:
    """The sweep that `sweep_values` gave."""
    try:
        objectives = tuple(Objective(**each) for each in values["objectives"])
        parameters = list(values["parameters"])
        rows = tuple(_row(point, parameters) for point in values["points"])
        shares = {
            each["parameter"]: {
                objective.name: each[f"{objective.name}_share"]
                for objective in objectives
                if each.get(f"{objective.name}_share") is not None
            }
            for each in values["importance"]
        }
        return SweepRecord(str(values["sweep"]), objectives, rows, shares)
    except (KeyError, TypeError) as error:
        raise ReportError(
            f"this is no record of a sweep ({type(error).__name__}: {error}); pass its sweep.sqlite, or what "
            "`acf sweep --json` wrote"
        ) from error


def _row(point: Mapping[str, Any], parameters: list[str]) -> SweepRow:
    known = {*parameters, "on_front", "failure"}
    figures = {name: value for name, value in point.items() if name not in known and value is not None}
    failure = point.get("failure") or ""
    changes = {name: point[name] for name in parameters if point.get(name) is not None}
    return SweepRow(Attempt(changes, None if failure else figures, failure), bool(point["on_front"]))
