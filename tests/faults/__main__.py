"""``python -m tests.faults --kills 200 --full 200``: kill runs and fill their disk at seeded moments, and go on."""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.faults.disk import load_faulty_disk

if TYPE_CHECKING:
    from tests.faults.campaign import Findings


COUNTS = ("kills", "full_disks", "one_line", "went_on", "resumed_runs")
"""What is counted of every workload."""


def main() -> int:
    """Play the campaign; exit code 1 where a run did not end as an uninterrupted one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--full", type=int, default=200, help="runs on a disk that is full at one of their writes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workloads", default="", help="names, separated by commas; default: all")
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--keep", type=Path, help="folder for the runs; those that went wrong stay in it")
    options = parser.parse_args()
    load_faulty_disk()
    from tests.faults.workloads import BROKEN, workloads

    known = workloads()
    names = options.workloads.split(",") if options.workloads else list(known)
    if unknown := set(names) - set(known | BROKEN):
        parser.error(f"no workload {', '.join(sorted(unknown))}; known with what is installed: {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="acf-faults-") as folder:
        return _play(options, names, options.keep or Path(folder))


def _play(options: argparse.Namespace, names: list[str], folder: Path) -> int:
    from tests.faults.campaign import Campaign, Findings
    from tests.faults.workloads import BROKEN, import_everything, workloads, write_data
    from tests.origin import origin

    import_everything()
    known = workloads()
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        started = time.monotonic()
        own = folder.resolve() / name
        shutil.rmtree(own, ignore_errors=True)
        write_data(own / "data")
        found = Findings()
        campaign = Campaign(name, (known | BROKEN)[name], own, options.seed, found)
        campaign.kill(_share(options.kills, place, len(names)))
        campaign.fill_disk(_share(options.full, place, len(names)))
        rows.append(_row(name, found, time.monotonic() - started))
        print(f"{name}: {campaign.case} runs in {rows[-1]['seconds']:.0f} s", flush=True)
    total = SimpleNamespace(**{key: sum(row[key] for row in rows) for key in COUNTS})
    wrong = [each for row in rows for each in row["wrong"]]
    print(*(f"WRONG {each}" for each in wrong), sep="\n", end="\n" if wrong else "")
    print(
        f"{total.kills} kills and {total.full_disks} full disks over {', '.join(names)}: {total.one_line} ended with "
        f"one line, {total.went_on} went on; {total.resumed_runs} runs gone on with, {len(wrong)} wrong"
    )
    if options.out is not None:
        command = f"python -m tests.faults --kills {options.kills} --full {options.full} --seed {options.seed}"
        command += f" --workloads {options.workloads}" if options.workloads else ""
        options.out.write_text(json.dumps(origin(command) | {"rows": rows}, indent=1) + "\n")
    return 1 if wrong else 0


def _row(name: str, found: "Findings", seconds: float) -> dict[str, Any]:
    """What the record says of one workload."""
    outcomes = {"one_line": found.outcomes["ended with one line"], "went_on": found.outcomes["went on"]}
    counts = {"kills": found.kills, "full_disks": found.full_disks, "resumed_runs": found.resumed_runs}
    return {"workload": name, **counts, **outcomes, "wrong": found.wrong, "seconds": seconds}


def _share(total: int, place: int, count: int) -> int:
    """The part of ``total`` that falls to one of ``count`` workloads; the first ones get what is left over."""
    return total // count + (place < total % count)


if __name__ == "__main__":
    raise SystemExit(main())
