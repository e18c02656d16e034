"""The published figures: every row that can be reproduced is in tolerance, and the verdicts say what is true."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import acf.reproduce
from acf.cli import app
from acf.errors import AcfError
from acf.reproduce import ROWS, Row, reproduce
from acf.reproduce.row import Check, absolute, at_most, from_inputs, holds, measured, relative

PACKAGE = Path(acf.reproduce.__file__).parent
RECORD = {
    row["id"]: row
    for row in json.loads((Path(__file__).parents[1] / "docs" / "results" / "reproduce.json").read_text())["data"][
        "rows"
    ]
}
NOT_REPRODUCIBLE = {"S4", "S12", "B3", "B4", "U4"}  # training runs, CIFAR-100, training runs, boards, a GPU kernel
FROM_INPUTS = {"T1", "T2", "T3", "T4", "S6", "S8", "S9", "S10", "S13"}  # arithmetic on figures of the same paper
KNOWN_MISSES = {"T12": (2, "resnet50"), "S6": (4, "measured"), "S11": (3, "measured"), "U2": (1, "over a V100")}
RESTS_ON = {"T5": "substituted layer", "T14": "replaced after the run", "T15": "`multicast` = 16, fitted"}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_has_its_label_and_misses_only_what_is_known_to_miss(name: str) -> None:
    ((_, row),) = reproduce([name])
    assert row.reproducible == (name not in NOT_REPRODUCIBLE)
    assert row.accepted, [vars(check) for check in row.checks if not check.accepted]
    assert bool(row.checks) == row.reproducible
    assert ("consistent with its inputs" in row.label) == (name in FROM_INPUTS)
    assert RESTS_ON.get(name, "") in row.rests_on
    recorded = {check["what"]: check["ours"] for check in RECORD[name]["checks"]}
    ours = {check.what: check.ours for check in row.checks}
    assert ours == pytest.approx(recorded, rel=1e-3), "run: acf reproduce --out docs/results/reproduce.json"
    missed = [check.what for check in row.checks if not check.within]
    count, words = KNOWN_MISSES.get(name, (0, ""))
    assert len(missed) == count, missed
    assert all(words in what for what in missed)


def test_a_row_stands_in_a_file_named_after_its_paper() -> None:
    papers = {"T": "tensordash", "S": "spartann", "B": "sat", "U": "fabric"}
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
    assert row.verdict == "missed"
    done = CliRunner().invoke(app, ["reproduce", "--only", "T1"])
    assert done.exit_code == 1
    assert "missed: 100% above" in done.stdout


def test_a_known_miss_is_labelled_as_one_and_does_not_fail_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    check = replace(relative("x", 2.0, 1.0, 0.0), known_miss="other data")
    monkeypatch.setitem(ROWS, "T1", lambda: Row("claim", "set-up", (check,)))
    assert check.label == "missed: 50% below the paper"
    assert CliRunner().invoke(app, ["reproduce", "--only", "T1"]).exit_code == 0


def test_a_figure_made_of_the_papers_own_figures_is_consistent_and_not_reproduced() -> None:
    right, wrong = from_inputs(relative("x", 2.0, 2.0, 0.1), relative("x", 2.0, 3.0, 0.1))
    assert right.label == "consistent with its inputs"
    assert wrong.label.startswith("missed")
    assert Row("claim", "set-up", (right, relative("y", 1.0, 1.0, 0.1))).label == (
        "consistent with its inputs; reproduced"
    )


def test_a_figure_without_tolerance_is_only_measured_and_is_valid_json() -> None:
    row = Row("claim", "set-up", (measured("x", "3x", 0.1),))
    assert row.label == "measured, no tolerance"
    assert json.loads(json.dumps(row.to_dict(), allow_nan=False))["checks"][0]["low"] is None


def test_the_records_of_the_package_are_those_of_the_documentation() -> None:
    results = Path(__file__).parents[1] / "docs" / "results"
    traces = {
        trace["label"].partition(":")[0]: trace
        for trace in json.loads((results / "traces.json").read_text())["data"][:8]
    }
    speedups = json.loads((PACKAGE / "eight_networks.json").read_text())["speedups"]
    assert speedups == {name: trace["tensordash"]["compute"] for name, trace in traces.items()}
    zeros = json.loads((results / "zeros.json").read_text())["data"]
    densities = json.loads((PACKAGE / "gradient_densities.json").read_text())["densities"]
    for network, label in (("alexnet", "AlexNet"), ("googlenet-2015", "GoogLeNet")):
        for variant in zeros[network]["variants"]:
            stored = densities[label + (", DTS" if variant["gradient_target"] else "")]
            for layer, shares in variant["layers"].items():
                assert stored[layer] == pytest.approx(1 - shares["gradients"]["mean"], abs=1e-9)
    records = ("fabric-steps.json", "fabric-scale.json")
    steps = [step for name in records for step in json.loads((results / name).read_text())["data"]]
    for row in json.loads((PACKAGE / "fabric_step.json").read_text())["rows"]:
        assert row["machine"] == "gpu-v100" or any(
            all(step[key] == value for key, value in row.items()) for step in steps
        )


def test_the_command_prints_rows_for_people_and_for_programs() -> None:
    table = CliRunner().invoke(app, ["reproduce", "--only", "T1,S12"])
    assert table.exit_code == 0
    assert "16.4 TFLOPS" in table.stdout
    assert "because" in table.stdout
    assert "consistent" in table.stdout
    listed = CliRunner().invoke(app, ["reproduce", "--only", "T1,S12", "--json"])
    rows = {row["id"]: row for row in json.loads(listed.stdout)["data"]["rows"]}
    assert rows["T1"]["label"] == "consistent with its inputs"
    assert rows["S12"]["verdict"].startswith("not reproducible here, because")
