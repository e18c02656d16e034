"""Every door answers whatever comes in: with a result or one line, in time and memory. ``make fuzz`` plays more."""

from pathlib import Path

import pytest

from tests.fuzz.__main__ import merged_rows
from tests.fuzz.case import LongWork, run_case
from tests.fuzz.doors import DOORS, prepare
from tests.fuzz.doors.commands import SMALL, all_commands
from tests.fuzz.workers import play_door, play_here

CASES = {"command_line": 10, "output_place": 10, "trace_command": 12, "sweep_played": 8, "sharded_checkpoint": 8}
"""Of doors that take longer than others."""

MOST_CASES = 20
"""Of each other door, so that all doors together play more than 500."""


@pytest.mark.parametrize("name", DOORS)
def test_a_door_answers_whatever_comes_in(name: str, tmp_path: Path) -> None:
    prepare()  # with nothing compiled yet, the first case would take minutes
    findings = play_here(name, range(CASES.get(name, MOST_CASES)), tmp_path)
    assert not findings, "\n".join(map(str, findings))


def test_the_record_keeps_the_rows_of_doors_that_were_not_played_again() -> None:
    earlier = [{"door": "machine", "cases": 1}, {"door": "trace_header", "cases": 1}]
    kept = merged_rows(earlier, [{"door": "machine", "cases": 2}])
    assert kept == [{"door": "trace_header", "cases": 1}, {"door": "machine", "cases": 2}]


def test_every_command_is_played() -> None:
    assert set(SMALL) == set(all_commands())


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda folder: {}["x"], "KeyError"),
        (lambda folder: (folder.parent / "outside").mkdir(), "wrote outside its folder"),
        (lambda folder: bytearray(3 << 29), "took"),
    ],
)
def test_what_is_not_allowed_is_found(act, what, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    place = tmp_path / "door"
    place.mkdir()
    found = run_case("door", lambda rng, folder: act(folder), 0, place)
    assert found is not None
    assert what in found.what


def test_work_that_was_accepted_may_take_long(tmp_path: Path) -> None:
    def door(rng: object, folder: Path) -> None:
        raise LongWork

    (tmp_path / "door").mkdir()
    assert run_case("door", door, 0, tmp_path / "door") is None


def test_a_case_that_ends_its_process_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.fuzz.workers.COMMAND", ("-c", "import os; print('{\"seed\": 7}', flush=True); os._exit(9)")
    )
    (found,) = play_door("machine", range(7, 8), tmp_path)
    assert found.seed == 7
    assert "its process ended with 9" in found.what
