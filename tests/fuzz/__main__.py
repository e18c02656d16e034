"""``python -m tests.fuzz --cases 10000``: fuzz every door in turn, seeded, and list what is not allowed."""

import argparse
import tempfile
from pathlib import Path

from tests.fuzz.doors import DOORS
from tests.fuzz.workers import play_door


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="of all doors together")
    parser.add_argument("--seed", type=int, default=0, help="of the first case of every door")
    parser.add_argument("--doors", default=",".join(DOORS), help="names, separated by commas")
    options = parser.parse_args()
    names = options.doors.split(",")
    findings = []
    with tempfile.TemporaryDirectory(prefix="acf-fuzz-") as folder:
        for place, name in enumerate(names):
            count = options.cases // len(names) + (place < options.cases % len(names))
            found = play_door(name, range(options.seed, options.seed + count), Path(folder))
            print(*found, f"{name}: {count} cases, {len(found)} findings", sep="\n", flush=True)
            findings += found
    print(f"{options.cases} cases over {len(names)} doors: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
