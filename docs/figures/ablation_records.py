"""Joins runs of `acf bench ablation` into the records of docs/results/ablations.md.

    python docs/figures/ablation_records.py runs/ablation

The folder has a run folder for each of `COMMANDS`. A record is written once all its ablations are there; it names the
commits and the day of the runs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from acf.errors import AcfError, DataError
from acf.files import write_whole
from acf.records import data_of
from acf.records.write import envelope, json_text

RESULTS = Path(__file__).parents[1] / "results"
COMMANDS = {
    "transformer": "--what block,regrow,interconnect,balancer,prefetch,scus,memory,network --sparsity 0.9",
    "resnet50": "--what block,interconnect,balancer,memory --network resnet50 --examples 8 --sparsity 0.9",
    "resnet50-network": "--what network --network resnet50 --examples 4 --sparsity 0.9 --seeds 1",
    "16384": "--what interconnect,prefetch --on acf-16384 --examples 4096 --sparsity 0.9",
}
"""Options of `acf bench ablation` by run folder."""

RECORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "ablations.json": {
        "transformer": ("block", "regrow", "interconnect", "balancer", "prefetch", "scus"),
        "resnet50": ("block", "interconnect", "balancer"),
        "16384": ("interconnect", "prefetch"),
    },
    "ablations-memory.json": {
        "transformer": ("memory", "network"),
        "resnet50": ("memory",),
        "resnet50-network": ("network",),
    },
}
"""Ablations of every record by run folder, in the order in which the page has them."""


def joined(runs: Path, parts: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The record of the ablations of ``parts``."""
    read = [_read(runs / folder / f"{name}.json") for folder, names in parts.items() for name in names]
    values = envelope("ablations", [data_of(each) for each in read])
    values["command"] = "; ".join(f"acf bench ablation {COMMANDS[folder]}" for folder in parts)
    values["commit"] = ", ".join(sorted({commit for each in read for commit in each["commit"].split(", ")}))
    values["date"] = max(each["date"] for each in read)
    return values


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise DataError(f"{path} is missing; run acf bench ablation {COMMANDS[path.parent.name]} --out {path.parent}")
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    failed = [point["failure"] for point in loaded["data"]["points"] if point.get("failure")]
    if failed:
        raise DataError(f"{path} has a point that failed: {failed[0]}; run it again")
    return loaded


def main(runs: Path) -> None:
    """Join and write what there is."""
    for name, parts in RECORDS.items():
        write_whole(RESULTS / name, (json_text(joined(runs, parts)) + "\n").encode())


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except AcfError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
