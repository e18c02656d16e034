"""Rows of whole steps: which there are, that a replay resumes, and how they become one record."""

import fcntl
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from acf.errors import DataError
from acf.records import read_record
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity
from acf.sim.fabric.energy import mesh_j
from acf.sim.registry import spec_of_kind

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "figures" / "fabric_steps.py"))
Row = SCRIPT["Row"]


def write_row(folder: Path, row: Any, energy_j: float) -> None:
    values = {"network": row.network, "machine": row.machine, "beside": row.fabric, "energy_j": energy_j, "update": {}}
    (folder / row.file_name).write_text(json.dumps(values))


def test_every_step_of_a_fabric_comes_with_the_machines_beside_it() -> None:
    rows = SCRIPT["published_rows"]()
    shown = [row for row in rows if row.fabric in SCRIPT["FABRICS"]]
    machines = {(row.network, row.fabric, row.sparsity, row.seed, row.zeros): set() for row in shown}
    for row in shown:
        machines[row.network, row.fabric, row.sparsity, row.seed, row.zeros].add(row.machine)
    assert all(found == {step[1], "tensorcore", "tensordash"} for step, found in machines.items())
    assert {(network, fabric) for network, fabric, sparsity, seed, _ in machines if (sparsity, seed) == (0.9, 2)} == {
        (network, fabric) for network in SCRIPT["NETWORKS"] for fabric in SCRIPT["FABRICS"]
    }


def test_machines_with_the_same_memory_are_played_once() -> None:
    beside = {fabric: Row("resnet50", fabric, "tensorcore", 0.9).file_name for fabric in SCRIPT["FABRICS"]}
    assert beside["acf-512"] == beside["acf-512-wide"]
    assert beside["acf-512"] != beside["acf-512-lean"]
    assert len({Row("resnet50", fabric, fabric, 0.9).file_name for fabric in SCRIPT["FABRICS"]}) == 3


def test_a_row_is_played_unless_it_is_there_or_another_process_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []
    monkeypatch.setattr(Row, "play", lambda row, update: played.append(row.machine) or {"update": update or None})
    rows = SCRIPT["rows_of"]("resnet50", "acf-512", 0.9, 0, None)
    write_row(tmp_path, rows[0], 1.0)
    with (tmp_path / f"{rows[1].file_name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        SCRIPT["play_into"](tmp_path, rows)
    assert played == ["tensordash"]
    SCRIPT["play_into"](tmp_path, rows)
    assert played == ["tensordash", "tensorcore"]


def test_algorithm_1_can_be_left_for_a_later_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    monkeypatch.setattr(Row, "play", lambda row, update: played.append(row.machine) or {"update": update or None})
    rows = SCRIPT["rows_of"]("resnet50", "acf-512-lean", 0.9, 0, None)
    SCRIPT["play_into"](tmp_path, rows, update=False)
    SCRIPT["play_into"](tmp_path, rows)
    SCRIPT["play_into"](tmp_path, rows)
    assert played == ["acf-512-lean", "tensorcore", "tensordash", "acf-512-lean"]


def test_rows_of_a_folder_become_a_record_for_each_size_of_fabrics(tmp_path: Path) -> None:
    for fabric in ("acf-512", "acf-512-wide"):
        for place, row in enumerate(SCRIPT["rows_of"]("resnet50", fabric, 0.9, 0, None)):
            write_row(tmp_path, row, float(place))
    for row in SCRIPT["rows_of"]("resnet50", "acf-h200", 0.9, 0, None):
        write_row(tmp_path, row, 0.0)
    SCRIPT["write_joined"](tmp_path, tmp_path)
    large = json.loads((tmp_path / "fabric-scale.json").read_text())
    assert [row["machine"] for row in large["data"]] == ["acf-h200", "gpu-h200"]
    record = read_record(tmp_path / "fabric-steps.json")
    assert record.kind == "fabric"
    assert record.origin["command"].startswith("python docs/figures/fabric_steps.py")
    assert [(row["beside"], row["machine"]) for row in record.data] == [
        (fabric, machine) for fabric in ("acf-512-wide", "acf-512") for machine in (fabric, "tensorcore", "tensordash")
    ]


def test_records_are_split_into_the_rows_that_a_folder_lacks(tmp_path: Path) -> None:
    results, folder = tmp_path / "results", tmp_path / "rows"
    folder.mkdir()
    results.mkdir()
    for place, row in enumerate(SCRIPT["rows_of"]("resnet50", "acf-512", 0.9, 0, results / "zeros.json")):
        values = {"sparsity": 0.9, "seed": 0, "zeros": "zeros.json"}
        write_row(folder, row, float(place))
        path = folder / row.file_name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
    (results / "fabric-scale.json").write_text(json.dumps({"kind": "fabric", "schema": 1, "data": []}))
    SCRIPT["write_joined"](folder, results)
    replayed = folder / SCRIPT["rows_of"]("resnet50", "acf-512", 0.9, 0, results / "zeros.json")[0].file_name
    replayed.write_text(replayed.read_text().replace("0.0", "7.0"))
    lost = next(path for path in folder.iterdir() if "tensordash" in path.name)
    lost.unlink()
    SCRIPT["write_split"](folder, results)
    assert json.loads(replayed.read_text())["energy_j"] == 7.0
    assert json.loads(lost.read_text())["energy_j"] == 2.0


def test_a_missing_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no row of a fabric; play some with --into"):
        SCRIPT["write_joined"](tmp_path, tmp_path)
    fabric, rival, _ = SCRIPT["rows_of"]("resnet50", "acf-512", 0.9, 0, None)
    write_row(tmp_path, fabric, 1.0)
    with pytest.raises(DataError, match=f"{rival.file_name} is missing beside acf-512"):
        list(SCRIPT["joined"](tmp_path, SCRIPT["FABRICS"]))


def test_the_rows_that_the_package_reads_are_those_of_the_records(tmp_path: Path) -> None:
    step = {"network": "resnet50", "sparsity": 0.9, "seed": 0, "zeros": "synthetic"}
    rows = [step | {"machine": "tensorcore", "beside": name, "energy_j": 2.0} for name in ("acf-512-lean", "acf-512")]
    rows[1]["energy_j"] = 3.0
    for name, data in (("fabric-steps.json", rows), ("fabric-scale.json", [])):
        (tmp_path / name).write_text(json.dumps({"kind": "fabric", "schema": 1, "data": data}))
    stored = [
        {"network": "resnet50", "sparsity": 0.9, "machine": name, "energy_j": 1.0} for name in ("tensorcore", "gpu")
    ]
    path = tmp_path / "package.json"
    path.write_text(json.dumps({"source": "made up", "rows": stored}))
    SCRIPT["renew_package_record"](tmp_path, path)
    assert [row["energy_j"] for row in json.loads(path.read_text())["rows"]] == [3.0, 1.0]
    SCRIPT["renew_package_record"](tmp_path, path, [step | {"machine": "gpu", "beside": "acf-512", "energy_j": 4.0}])
    assert [row["energy_j"] for row in json.loads(path.read_text())["rows"]] == [3.0, 4.0]


def fabric_row(machine: str, activity: Activity) -> dict[str, Any]:
    """A row of a fabric, charged by the figures of today."""
    spec = spec_of_kind(AdaptiveFabric, machine)
    row = {"machine": machine, "counters": activity.counters, "seconds": 1.0, "step_seconds": 2.0}
    charge_j = SCRIPT["control_charge_j"](row)
    stands_j = {"mesh": mesh_j(spec, activity.flit_hops), "leakage": 2.0 * spec.leakage_w}
    breakdown_j = {"mac": 5.0} | stands_j | charge_j
    products_j = sum(breakdown_j.values()) - spec.leakage_w
    totals = {"energy_j": products_j + spec.leakage_w, "products_energy_j": products_j}
    return row | totals | {"energy_breakdown_j": breakdown_j, "control_charge_j": charge_j}


def test_rows_without_counters_are_left_as_they_are_when_records_are_charged(tmp_path: Path) -> None:
    rival = {"machine": "tensorcore", "energy_j": 2.0, "counters": {}}
    fabric = fabric_row("acf-512", Activity(1000, work_cycles=4000))
    for name in SCRIPT["RECORDS"]:
        (tmp_path / name).write_text(json.dumps({"kind": "fabric", "schema": 1, "data": [fabric, rival]}))
    SCRIPT["charge_records"](tmp_path)
    charged, untouched = read_record(tmp_path / "fabric-steps.json").data
    assert untouched == rival
    assert charged["energy_breakdown_j"] == pytest.approx(fabric["energy_breakdown_j"])
    assert "charged_at" in charged


def test_a_row_by_the_figures_of_today_stays_as_it_is_when_it_is_charged() -> None:
    row = fabric_row("acf-512-lean", Activity(1000, work_cycles=4000, row_flits=10, walk_cycles=50, flit_hops=70))
    again = SCRIPT["charged"](row)
    assert again["energy_breakdown_j"] == pytest.approx(row["energy_breakdown_j"])
    assert (again["energy_j"], again["products_energy_j"]) == pytest.approx((row["energy_j"], row["products_energy_j"]))


def test_other_figures_change_control_clock_mesh_leakage_and_totals_alone() -> None:
    row = fabric_row("acf-512-lean", Activity(1000, work_cycles=4000, row_flits=10, walk_cycles=50, flit_hops=70))
    today = row["energy_breakdown_j"]
    old = today | {"clock": 0.0, "mesh": 0.0, "leakage": 0.0}
    missing = today["clock"] + today["mesh"]
    leaks = today["leakage"]
    totals = {"energy_j": row["energy_j"] - missing - leaks}
    totals |= {"products_energy_j": row["products_energy_j"] - missing - leaks / 2}
    charge_j = row["control_charge_j"] | {"clock": 0.0}
    again = SCRIPT["charged"](row | totals | {"energy_breakdown_j": old, "control_charge_j": charge_j})
    assert again["energy_breakdown_j"] == pytest.approx(today)
    assert (again["energy_j"], again["products_energy_j"]) == pytest.approx((row["energy_j"], row["products_energy_j"]))
