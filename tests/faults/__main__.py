"""``python -m tests.faults --kills 200 --full 200``: kill runs and fill their disk at seeded moments, and go on."""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.disk import load_faulty_disk


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
    with tempfile.TemporaryDirectory(prefix="acf-faults-") as folder:
        return _play(options, options.keep or Path(folder))


def _play(options: argparse.Namespace, folder: Path) -> int:
    from tests.faults.campaign import Campaign, Findings
    from tests.faults.workloads import BROKEN, import_everything, workloads, write_data
    from tests.origin import origin

    import_everything()
    known = workloads()
    names = options.workloads.split(",") if options.workloads else list(known)
    findings = Findings()
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        started = time.monotonic()
        own = folder.resolve() / name
        shutil.rmtree(own, ignore_errors=True)
        write_data(own / "data")
        campaign = Campaign(name, (known | BROKEN)[name], own, options.seed, findings)
        campaign.kill(_share(options.kills, place, len(names)))
        campaign.fill_disk(_share(options.full, place, len(names)))
        rows.append({"workload": name, "runs": campaign.case, "seconds": time.monotonic() - started})
        print(f"{name}: {campaign.case} runs in {rows[-1]['seconds']:.0f} s", flush=True)
    for wrong in findings.wrong:
        print("WRONG", wrong)
    told = ", ".join(f"{count} {what}" for what, count in sorted(findings.outcomes.items()))
    print(
        f"{findings.kills} kills and {findings.full_disks} full disks over {', '.join(names)}: {told}; "
        f"{findings.resumed_runs} runs gone on with, {len(findings.wrong)} wrong"
    )
    if options.out is not None:
        command = f"python -m tests.faults --kills {options.kills} --full {options.full} --seed {options.seed}"
        options.out.write_text(json.dumps(origin(command) | vars(findings) | {"rows": rows}, indent=1) + "\n")
    return 1 if findings.wrong else 0


def _share(total: int, place: int, count: int) -> int:
    """The part of ``total`` that falls to one of ``count`` workloads; the first ones get what is left over."""
    return total // count + (place < total % count)


if __name__ == "__main__":
    raise SystemExit(main())
