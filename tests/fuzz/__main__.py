"""``python -m tests.fuzz --cases 10000``: fuzz every door in turn, seeded, and list what is not allowed."""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fuzz.doors import DOORS
from tests.fuzz.workers import play_door
from tests.origin import origin


def main() -> int:
    """Play the cases; exit code 1 where one has a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="of all doors together")
    parser.add_argument("--seed", type=int, default=0, help="of the first case of every door")
    parser.add_argument("--doors", default=",".join(DOORS), help="names, separated by commas")
    parser.add_argument("--out", type=Path, help="JSON to write; rows of other doors that it holds stay")
    options = parser.parse_args()
    names = options.doors.split(",")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="acf-fuzz-") as folder:
        for place, name in enumerate(names):
            count = options.cases // len(names) + (place < options.cases % len(names))
            rows.append(_play(name, range(options.seed, options.seed + count), Path(folder)))
    findings = sum(len(row["findings"]) for row in rows)
    print(f"{options.cases} cases over {len(names)} doors: {findings} findings")
    if options.out is not None:
        command = f"python -m tests.fuzz --cases {options.cases} --seed {options.seed} --doors {options.doors}"
        _keep(options.out, [row | origin(command) for row in rows])
    return 1 if findings else 0


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Put the rows into the record, in the place of earlier ones of the same doors."""
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = merged_rows(earlier, rows)
    command = f"python -m tests.fuzz --cases {sum(row['cases'] for row in kept)}"
    path.write_text(json.dumps(origin(command) | {"rows": kept}, indent=1) + "\n")


def merged_rows(earlier: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The latest row of every door, in the order of the doors."""
    latest = {row["door"]: row for row in (*earlier, *rows)}
    return [latest[name] for name in DOORS if name in latest]


def _play(name: str, seeds: range, folder: Path) -> dict[str, Any]:
    """The cases of one door: their number, wall time and findings, printed as they end."""
    started = time.monotonic()
    found = play_door(name, seeds, folder)
    seconds = time.monotonic() - started
    print(*found, f"{name}: {len(seeds)} cases in {seconds:.0f} s, {len(found)} findings", sep="\n", flush=True)
    return {"door": name, "cases": len(seeds), "seconds": seconds, "findings": [str(each) for each in found]}


if __name__ == "__main__":
    raise SystemExit(main())
