"""Whole training steps on the fabrics and on machines of equal peak, row by row: the records of docs/results/fabric.md.

    python docs/figures/fabric_steps.py --into runs/steps                         # every row of the records
    python docs/figures/fabric_steps.py resnet50 acf-512-lean --sparsity 0.9 --into runs/steps
    python docs/figures/fabric_steps.py --charge                                  # the records by today's figures
    python docs/figures/fabric_steps.py --split runs/steps                        # the records' rows that it lacks
    python docs/figures/fabric_steps.py --join runs/steps                         # writes the records

A row is one step on one machine, as `acf bench fabric` plays it, and is written to a file of its own when it is done: a
call that was interrupted goes on where it stopped, and several calls share the rows of a folder. Delete a row's file to
play it again. Figures of `acf.cost.control` change no cycle: ``--charge`` takes them to the counters of the records'
rows, without playing them. ``--split`` writes the rows of the records to a folder, to play others beside them.
"""

import argparse
import fcntl
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import acf
from acf.bench.fabric.comparison import PEERS, play_on_fabric, play_step
from acf.bench.fabric.workloads import EXAMPLES, StepSpec
from acf.bench.provenance import commit_of
from acf.errors import AcfError, DataError
from acf.files import write_whole
from acf.records import data_of
from acf.records.write import envelope, json_text
from acf.sim import spec
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.activity import Activity
from acf.sim.fabric.control import control_j
from acf.sim.fabric.energy import mesh_j
from acf.sim.registry import spec_of_kind

RESULTS = Path(__file__).parents[1] / "results"
MEASURED_ZEROS, TRAINED_ZEROS = RESULTS / "zeros.json", RESULTS / "zeros-trained.json"
"""Zeros of networks after 30 or 40 steps, and after whole runs of the evaluation."""

NETWORKS = ("resnet50", "transformer-base")
FABRICS = ("acf-512-lean", "acf-512-wide", "acf-512")
LARGE_FABRICS = ("acf-16384", "acf-16384-hbm3e", "acf-h200")
RECORDS = {"fabric-steps.json": FABRICS, "fabric-scale.json": LARGE_FABRICS}
"""The records, each of its own fabrics."""

PACKAGE_RECORD = Path(acf.__file__).parent / "reproduce" / "fabric_step.json"
PACKAGE_FABRICS = ("acf-512", "acf-h200")
"""Some of the rows, which the package has of its own, and the fabrics that they stand beside."""

BESIDE: dict[str, dict[str, AcceleratorSpec]] = {
    **{fabric: PEERS[fabric] for fabric in sorted(FABRICS)},
    "acf-16384": {},
    "acf-16384-hbm3e": {},
    "acf-h200": {"gpu-h200": spec("gpu-h200")},
}
"""The machines that are played beside every fabric."""

COMMIT = commit_of(Path(acf.__file__).parent)
"""Of the code that this process runs: files may change while it plays."""

SPARSITIES = (0.9, 0.0, 0.75, 0.5)
NOT_KEPT = ("by_op", "host_seconds", "host_peak_bytes")
"""Fields of a played step that the record leaves out: `acf bench fabric` prints them."""


@dataclass(frozen=True)
class Row:
    """A step on ``machine``, which is ``fabric`` or stands beside it; ``zeros``: file of measured zeros, or None."""

    network: str
    fabric: str
    machine: str
    sparsity: float
    seed: int = 0
    zeros: Path | None = None

    @property
    def zeros_name(self) -> str:
        """How the record calls the zeros."""
        return self.zeros.name if self.zeros else "synthetic"

    @property
    def has_update(self) -> bool:
        """Whether Algorithm 1 is played too: it takes as long again, and one fabric tells its share of a run."""
        is_shown = (self.sparsity, self.seed, self.zeros) == (0.9, 0, None)
        return is_shown and self.machine == self.fabric == FABRICS[0]

    @property
    def file_name(self) -> str:
        """The row's file; machines that stand beside several fabrics alike are played once."""
        beside = next(name for name in BESIDE if self.machine == self.fabric == name or self._is_same_beside(name))
        words = (self.network, beside, self.machine, f"{self.sparsity:g}", f"seed{self.seed}", self.zeros_name)
        return "_".join(words) + ".row.json"

    def _is_same_beside(self, fabric: str) -> bool:
        own = BESIDE[self.fabric].get(self.machine)
        return own is not None and BESIDE[fabric].get(self.machine) == own

    def play(self, update: bool) -> dict[str, Any]:
        """The row's figures, with the commit and the day they were made at.

        ``update``: with Algorithm 1, where the row has it.
        """
        step = StepSpec(self.network, EXAMPLES[self.network], self.sparsity, seed=self.seed, zeros=self.zeros)
        if self.machine == self.fabric:
            played = play_on_fabric(step, self.machine, update and self.has_update)
        else:
            played = play_step(step, self.machine, BESIDE[self.fabric][self.machine])
        figures = {name: value for name, value in played.to_dict().items() if name not in NOT_KEPT}
        if self.machine == self.fabric:
            figures["control_charge_j"] = control_charge_j(figures)
        made = {"commit": COMMIT, "date": datetime.now(UTC).date().isoformat()}
        return {"network": self.network, "beside": self.fabric} | figures | made


def control_charge_j(row: dict[str, Any]) -> dict[str, float]:
    """Joules of control and clock in the products of a fabric's row, by the figures of today."""
    return control_j(spec_of_kind(AdaptiveFabric, row["machine"]), Activity.of_counters(row["counters"]))


def charged(row: dict[str, Any]) -> dict[str, Any]:
    """A fabric's row with control, clock, mesh and leakage by the figures of today, everything else as it was played.

    Control and its area decide how long links are, and so what the mesh takes. ``update`` stays as it was played.
    """
    spec, before_j = spec_of_kind(AdaptiveFabric, row["machine"]), row["energy_breakdown_j"]
    charge_j = control_charge_j(row)
    change_j = {name: joules - row["control_charge_j"][name] for name, joules in charge_j.items()}
    change_j["mesh"] = mesh_j(spec, row["counters"]["flit_hops"]) - before_j["mesh"]
    leaks_w = spec.leakage_w - before_j["leakage"] / row["step_seconds"]
    seconds = {"energy_j": row["step_seconds"], "products_energy_j": row["seconds"]}
    totals = {name: row[name] + sum(change_j.values()) + leaks_w * seconds[name] for name in seconds}
    change_j["leakage"] = leaks_w * row["step_seconds"]
    breakdown_j = {name: joules + change_j.get(name, 0.0) for name, joules in before_j.items()}
    return row | totals | {"energy_breakdown_j": breakdown_j, "control_charge_j": charge_j}


def charge_records(results: Path) -> None:
    """Charge the fabrics' rows of all records in ``results`` anew; ``charged_at`` is then the commit of the figures."""
    for name in RECORDS:
        values = json.loads((results / name).read_text(encoding="utf-8"))
        rows = [charged(row) | {"charged_at": COMMIT} if row.get("counters") else row for row in values["data"]]
        write_whole(results / name, (json_text(values | {"data": rows}) + "\n").encode())


def published_rows() -> list[Row]:
    """Every row of the records, those that most depends on first."""
    measured = [network for network in NETWORKS if network in data_of(json.loads(MEASURED_ZEROS.read_text()))]
    steps = dict.fromkeys(
        [
            *product(NETWORKS, FABRICS, (0.9, 0.0), (0,), (None,)),
            *product(measured, FABRICS, (0.9,), (0,), (MEASURED_ZEROS,)),
            *product(NETWORKS, LARGE_FABRICS[2:], (0.9,), (0,), (None,)),
            *product(NETWORKS[:1], LARGE_FABRICS[:2], (0.9,), (0,), (None,)),
            *product(NETWORKS, FABRICS, SPARSITIES, (0,), (None,)),
            *product(NETWORKS, FABRICS, (0.9,), (1, 2), (None,)),
            *product(measured, FABRICS, SPARSITIES, (0,), (MEASURED_ZEROS,)),
            *product(measured, FABRICS[:1], (0.9,), (1, 2), (MEASURED_ZEROS,)),
            *product(NETWORKS[:1], FABRICS, (0.9,), (0,), (TRAINED_ZEROS,)),
            *product(NETWORKS, FABRICS[:1], SPARSITIES, (1, 2), (None,)),
        ]
    )
    return [row for step in steps for row in rows_of(*step)]


def rows_of(network: str, fabric: str, sparsity: float, seed: int, zeros: Path | None) -> list[Row]:
    """One step on a fabric, then on the machines beside it."""
    return [Row(network, fabric, machine, sparsity, seed, zeros) for machine in (fabric, *BESIDE[fabric])]


def play_into(folder: Path, rows: list[Row], update: bool = True) -> None:
    """Play the rows that ``folder`` lacks, except those that another process plays now.

    Without ``update`` Algorithm 1 is left for a later call.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        path = folder / row.file_name
        with (folder / f"{row.file_name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free again when its process ends, however it ends
            except BlockingIOError:
                continue
            if path.exists() and not (update and row.has_update and _is_without_update(path)):
                continue
            print(f"{path.stem} ...", flush=True)
            write_whole(path, (json_text(row.play(update)) + "\n").encode())


def _is_without_update(path: Path) -> bool:
    return json.loads(path.read_text(encoding="utf-8"))["update"] is None


def joined(folder: Path, fabrics: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of ``fabrics`` in ``folder``: each step, then the machines beside the fabric."""
    order = list(product(NETWORKS, fabrics, (None, MEASURED_ZEROS, TRAINED_ZEROS), (0, 1, 2), sorted(SPARSITIES)))
    steps = [rows_of(network, fabric, sparsity, seed, zeros) for network, fabric, zeros, seed, sparsity in order]
    found = [rows for rows in steps if (folder / rows[0].file_name).exists()]
    for row in (row for rows in found for row in rows):
        path = folder / row.file_name
        if not path.exists():
            raise DataError(f"{path} is missing beside {row.fabric}; play it with --into {folder}")
        yield json.loads(path.read_text(encoding="utf-8")) | {"beside": row.fabric}


def write_split(folder: Path, results: Path) -> None:
    """Write the rows of the records to ``folder``, but for those that it has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in RECORDS:
        for values in data_of(json.loads((results / name).read_text(encoding="utf-8"))):
            zeros = None if values["zeros"] == "synthetic" else results / values["zeros"]
            step = (values[field] for field in ("network", "beside", "machine", "sparsity", "seed"))
            path = folder / Row(*step, zeros).file_name
            if not path.exists():
                write_whole(path, (json_text(values) + "\n").encode())


def write_joined(folder: Path, results: Path) -> None:
    """Write the rows of ``folder`` as the records of ``results``; a record without a row stays as it is."""
    rows = {name: list(joined(folder, fabrics)) for name, fabrics in RECORDS.items()}
    if not any(rows.values()):
        raise DataError(f"{folder} holds no row of a fabric; play some with --into {folder}")
    for name in filter(rows.get, RECORDS):
        values = envelope("fabric", rows[name])
        values["command"] = "python docs/figures/fabric_steps.py --into FOLDER, then --join FOLDER"
        write_whole(results / name, (json_text(values) + "\n").encode())


def package_gpu_row() -> dict[str, Any]:
    """The step on the GPU that row U2 of `acf reproduce` names, which stands beside no fabric of the records."""
    network, gpu = NETWORKS[0], "gpu-v100"
    played = play_step(StepSpec(network, EXAMPLES[network], SPARSITIES[0]), gpu, spec(gpu)).to_dict()
    return played | {"network": network, "beside": PACKAGE_FABRICS[0]}


def renew_package_record(results: Path, path: Path, others: Iterable[dict[str, Any]] = ()) -> None:
    """Take the rows that row U2 of `acf reproduce` reads from ``results`` and ``others``; those they lack stay."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for name in RECORDS for row in data_of(json.loads((results / name).read_text(encoding="utf-8")))]
    rows += others
    shown = [
        row for row in rows if row["beside"] in PACKAGE_FABRICS and (row["seed"], row["zeros"]) == (0, "synthetic")
    ]
    for number, kept in enumerate(stored["rows"]):
        key = {name: kept[name] for name in ("network", "sparsity", "machine")}
        found = [row for row in shown if key.items() <= row.items()]
        stored["rows"][number] = {name: found[0][name] for name in kept} if found else kept
    stored["date"] = datetime.now(UTC).date().isoformat()
    write_whole(path, (json.dumps(stored, indent=2, ensure_ascii=False) + "\n").encode())


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", choices=NETWORKS, help="default: every row of the records")
    parser.add_argument("fabric", nargs="?", choices=tuple(BESIDE))
    parser.add_argument("--sparsity", default="0,0.5,0.75,0.9", help="shares of absent blocks")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--zeros", type=Path, help="measured zeros, as acf bench zeros --out writes them")
    parser.add_argument("--only", choices=("fabrics", "rivals"), help="leave the other machines for another call")
    parser.add_argument("--no-update", action="store_true", help="leave Algorithm 1 for a later call")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--into", type=Path, help="folder of the rows' files")
    where.add_argument("--charge", action="store_true", help="control and clock of the records by today's figures")
    where.add_argument("--split", type=Path, help="folder that gets the rows of the records that it lacks")
    where.add_argument("--join", type=Path, help="folder whose rows become the records")
    return parser.parse_args()


def main() -> None:
    """Play rows, charge, split or join them."""
    given = _parsed()
    if given.join:
        write_joined(given.join, RESULTS)
        renew_package_record(RESULTS, PACKAGE_RECORD, [package_gpu_row()])
        return
    if given.charge:
        charge_records(RESULTS)
        renew_package_record(RESULTS, PACKAGE_RECORD)
        return
    if given.split:
        write_split(given.split, RESULTS)
        return
    rows = published_rows()
    if given.network:
        sparsities = [float(each) for each in given.sparsity.split(",")]
        seeds = [int(each) for each in given.seeds.split(",")]
        fabrics = [given.fabric] if given.fabric else FABRICS
        steps = product([given.network], fabrics, sparsities, seeds, [given.zeros])
        rows = [row for step in steps for row in rows_of(*step)]
    if given.only:
        rows = [row for row in rows if (row.machine == row.fabric) == (given.only == "fabrics")]
    play_into(given.into, rows, not given.no_update)


if __name__ == "__main__":
    try:
        main()
    except AcfError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
