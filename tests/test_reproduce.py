"""The published figures: every row that can be reproduced is in tolerance, and the verdicts say what is true."""

import json

import pytest
from typer.testing import CliRunner

from acf.cli import app
from acf.errors import AcfError
from acf.reproduce import ROWS, Row, reproduce
from acf.reproduce.row import Check, absolute, at_most, holds, relative

NOT_REPRODUCIBLE = {"S4", "S12", "B3", "B4"}  # training runs, CIFAR-100, training runs, other people's boards


@pytest.mark.parametrize("name", ROWS)
def test_every_row_that_can_be_reproduced_is_in_tolerance(name: str) -> None:
    ((_, row),) = reproduce([name])
    assert row.reproducible == (name not in NOT_REPRODUCIBLE)
    assert row.within, [vars(check) for check in row.checks if not check.within]
    assert bool(row.checks) == row.reproducible


def test_a_row_stands_in_a_file_named_after_its_paper() -> None:
    papers = {"T": "tensordash", "S": "spartann", "B": "sat"}
    for name, row in ROWS.items():
        assert row.__name__ == name.lower()
        assert row.__module__.startswith(f"acf.reproduce.{papers[name[0]]}")


def test_rows_keep_the_order_of_the_table() -> None:
    assert [name for name, _ in reproduce(["T3", "T1"])] == ["T1", "T3"]


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AcfError, match="row 'T99' is not known; use any of T1, T2"):
        list(reproduce(["T99"]))


@pytest.mark.parametrize(
    ("check", "within"),
    [
        (relative("x", 2.0, 2.1, 0.05), True),
        (relative("x", 2.0, 2.11, 0.05), False),
        (absolute("x", 4.8, 4.7, 0.11), True),
        (absolute("x", 6, 7, 0), False),
        (at_most("x", 3.0, 3.01), False),
        (holds("x", True), True),
        (holds("x", False), False),
    ],
)
def test_a_figure_is_in_tolerance_where_it_lies_between_the_bounds(check: Check, within: bool) -> None:
    assert check.within is within


def test_a_row_out_of_tolerance_says_so_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("claim", "set-up", (relative("x", 1.0, 2.0, 0.1),))
    monkeypatch.setitem(ROWS, "T1", lambda: row)
    assert row.verdict == "out of tolerance"
    done = CliRunner().invoke(app, ["reproduce", "--only", "T1"])
    assert done.exit_code == 1
    assert "out of tolerance" in done.stdout


def test_the_command_prints_rows_for_people_and_for_programs() -> None:
    table = CliRunner().invoke(app, ["reproduce", "--only", "T1,S12"])
    assert table.exit_code == 0
    assert "16.4 TFLOPS" in table.stdout
    assert "because" in table.stdout
    listed = CliRunner().invoke(app, ["reproduce", "--only", "T1,S12", "--json"])
    rows = {row["id"]: row for row in json.loads(listed.stdout)}
    assert rows["T1"]["verdict"] == "reproduced"
    assert rows["S12"]["verdict"].startswith("not reproducible here, because")
