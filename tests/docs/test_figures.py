"""Every figure of README, status and result pages is that of a record, or is listed as one that is not.

`docs/figures/bound.py` says how a page binds a figure. What a page does not bind is counted by section; the counts
stand in ``unbound.json`` with the reason, and may only shrink.
"""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BOUND = runpy.run_path(str(ROOT / "docs" / "figures" / "bound.py"))
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in BOUND["PAGES"]}
LISTED: dict[str, Any] = json.loads(Path(__file__).with_name("unbound.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", BOUND["BINDING_PAGES"], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_bound_figure_is_that_of_its_record(page: Path) -> None:
    assert list(BOUND["wrong_figures"](page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_other_figure_is_listed_with_the_reason_why_it_is_not_bound(page: str) -> None:
    listed = {section: entry["figures"] for section, entry in LISTED["pages"].get(page, {}).items()}
    found = BOUND["unbound_figures"](PAGES[page])
    more = {section: count for section, count in found.items() if count > listed.get(section, 0)}
    assert more == {}, f"bind these figures to a record, see docs/figures/bound.py; listed are {listed}"
    fewer = {section: found.get(section, 0) for section, count in listed.items() if found.get(section, 0) < count}
    assert fewer == {}, "fewer figures are unbound now: lower the counts in tests/docs/unbound.json"


def test_the_list_of_unbound_figures_names_pages_that_exist_and_gives_reasons() -> None:
    assert set(LISTED["pages"]) <= set(PAGES)
    reasons = [entry["reason"] for sections in LISTED["pages"].values() for entry in sections.values()]
    assert all(len(reason) > 10 for reason in reasons)


PROVENANCE = {"command", "date", "commit"}


def _given(part: Any) -> set[str]:
    """Which of `PROVENANCE` an object gives itself."""
    names = {"commands": "command", "revision": "commit"}
    return {names.get(key, key) for key in part} & PROVENANCE if isinstance(part, dict) else set()


def _has_provenance(record: Any) -> bool:
    """Whether a record gives all of `PROVENANCE`, or each of its parts does."""
    inner = list(record.values()) if isinstance(record, dict) else []
    sessions = record.get("sessions", []) if isinstance(record, dict) else []
    return set().union(*map(_given, (record, *inner, *sessions))) == PROVENANCE or _is_told_by_parts(record, set())


def _is_told_by_parts(part: Any, told: set[str]) -> bool:
    """Whether an object, or every object in it, gives what is not ``told`` around it."""
    told = told | _given(part)
    inner = [each for each in part.values() if isinstance(each, dict)] if isinstance(part, dict) else []
    return told == PROVENANCE or (bool(inner) and all(_is_told_by_parts(each, told) for each in inner))


def test_every_record_says_which_command_made_it_when_and_from_which_commit() -> None:
    records = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in BOUND["RESULTS"].glob("*.json")}
    without = {name for name, record in records.items() if not _has_provenance(record)}
    assert without == set(LISTED["records"]), "a new record needs command, date and commit; take repaired ones off"


def test_a_record_of_several_calls_must_say_of_each_where_it_comes_from() -> None:
    calls = {"command": "acf rtl area", "commit": "4195dab9"}
    record = {"date": "2026-11-16", "area": {"acf-512": calls, "acf-512-wide": calls}, "tools": "Yosys"}
    assert _has_provenance(record)
    assert not _has_provenance(record | {"area": {"acf-512": calls, "acf-512-wide": {"command": "acf rtl area"}}})
    assert not _has_provenance({"date": "2026-11-16", "tools": "Yosys"})


TABLE = """<!-- table: r.json
rows: rows
U: {100 * used:.1f} %
-->

| machine | U |
|---|---|
| a | 50.0 % |
| b | 25.5 % |

Figures: 2.5x in `1.5` runs of 90 %. <!-- figure: r.json {rows[0].ratio:.1f}x in `1.5` -->
"""


@pytest.fixture
def _record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"used": 0.5, "ratio": 2.46}, {"used": 0.255, "ratio": 1.0}]
    (tmp_path / "r.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setitem(BOUND["names_of"].__globals__, "RESULTS", tmp_path)


@pytest.mark.usefixtures("_record")
def test_a_figure_that_differs_from_its_record_is_found() -> None:
    assert list(BOUND["wrong_figures"](TABLE)) == []
    assert list(BOUND["wrong_figures"](TABLE.replace("25.5 %", "25.6 %"))) == [
        "r.json says '25.5 %', the page '25.6 %'"
    ]
    assert len(list(BOUND["wrong_figures"](TABLE.replace("2.5x in", "2.4x in")))) == 1
    shorter = TABLE.replace("| b | 25.5 % |\n", "")
    assert list(BOUND["wrong_figures"](shorter)) == ["r.json has 2 rows, the table 1"]


@pytest.mark.usefixtures("_record")
def test_a_figure_without_a_binding_is_counted_and_a_condition_is_not() -> None:
    assert BOUND["unbound_figures"](TABLE) == {}
    added = TABLE + "# Later\nIt is 3x as fast, 1.25 s, at 90 % of 4,096 tokens.\n"
    assert BOUND["unbound_figures"](added) == {"Later": 2}
    without_table = TABLE[TABLE.index("| machine") :].partition("<!--")[0]
    assert BOUND["unbound_figures"](without_table) == {"": 3}


GIVEN = """# Conditions
SGD with momentum 0.9 and a learning rate of 0.05, compute capability 9.0, 1.25 GHz; the aim is 2.5x.

    train --rate 0.5

| network | aim | measured |
|---|---|---|
| SqueezeNet 1.1 | 3.5x | 3.4x |
"""


def test_settings_versions_clocks_aims_and_indented_code_are_no_measurements() -> None:
    assert BOUND["unbound_figures"](GIVEN) == {"Conditions": 1}
    assert BOUND["unbound_figures"](GIVEN.replace("momentum 0.9", "an accuracy of 0.9")) == {"Conditions": 2}


@pytest.mark.usefixtures("_record")
def test_tables_are_written_again_from_their_records() -> None:
    stale = TABLE.replace("25.5 %", "9.9 %")
    assert BOUND["written"](stale) == TABLE


@pytest.mark.usefixtures("_record")
def test_a_missing_record_and_an_unknown_column_are_named() -> None:
    with pytest.raises(LookupError, match=r"record s\.json is missing"):
        list(BOUND["wrong_figures"](TABLE.replace("r.json", "s.json")))
    with pytest.raises(LookupError, match="no column for 'V: "):
        list(BOUND["wrong_figures"](TABLE.replace("U: {", "V: {")))


def test_a_sum_is_rounded_once_whatever_the_version_of_python() -> None:
    assert BOUND["exact_sum"]([0.1] * 10) == 1.0
    assert str(BOUND["exact_sum"]([1, 2])) == "3"
    assert BOUND["fill"]("{sum([0.1] * 10)}", BOUND["names_of"]("fuzz.json")) == "1.0"


TWO_RECORDS = "It takes 4.0x of it. <!-- figure: r.json {other('s.json').seconds / rows[1].used:.1f}x of it -->\n"


@pytest.mark.usefixtures("_record")
def test_a_figure_may_come_from_two_records() -> None:
    (BOUND["names_of"].__globals__["RESULTS"] / "s.json").write_text('{"seconds": 1.02}')
    assert list(BOUND["wrong_figures"](TWO_RECORDS)) == []
    (BOUND["names_of"].__globals__["RESULTS"] / "s.json").write_text('{"seconds": 2.04}')
    assert list(BOUND["wrong_figures"](TWO_RECORDS)) == ["r.json says '8.0x of it', the page does not"]


def test_an_ablation_gives_means_of_its_seeds_and_spans_and_names_a_missing_point() -> None:
    points = [SimpleNamespace(series="a", value="1", figures=SimpleNamespace(speedup=speedup)) for speedup in (1, 2)]
    record = SimpleNamespace(ablation="block", points=points)
    assert BOUND["mean"](record, "a", "1", "speedup") == 1.5
    assert BOUND["span"]([2.25, 0.5, 1.0], ".1f") == "0.5 to 2.2"
    with pytest.raises(LookupError, match="ablation block has no '2' of 'a'"):
        BOUND["mean"](record, "a", "2", "speedup")
