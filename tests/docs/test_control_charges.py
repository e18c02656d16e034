"""The record of what control is charged is that of the package as it is."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "figures" / "control_charges.py"))
RECORD: dict[str, Any] = json.loads(SCRIPT["RECORD"].read_text(encoding="utf-8"))


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of nested values, by its place."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list):
        yield place, value
    for name, inner in items:
        yield from _leaves(inner, f"{place}.{name}")


def test_the_record_says_what_the_package_charges_today() -> None:
    charged = SCRIPT["record"]()
    recorded, today = (dict(_leaves({name: values[name] for name in charged})) for values in (RECORD, charged))
    assert recorded.keys() == today.keys()
    for place, value in today.items():
        expected = value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
        assert recorded[place] == expected, f"{place}: run python docs/figures/control_charges.py"


def test_units_that_depend_on_the_work_stand_in_the_record_once_for_each_kind_of_it() -> None:
    switched = {row["unit"]: row["switched"] for row in RECORD["units"]}
    assert switched["wide scu, no zeros"] < switched["wide scu"]
    assert "topology link byte" not in switched
    assert {"topology unit, 32 bytes", "topology unit, 64 bytes"} <= set(switched)
