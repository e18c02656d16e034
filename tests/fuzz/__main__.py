"""``python -m tests.fuzz --cases 10000``: fuzz every door in turn, seeded, and list what is not allowed."""

import argparse
import tempfile
import warnings
from pathlib import Path

from tests.fuzz.case import Finding, run_case
from tests.fuzz.doors import DOORS, compile_loops


def fuzz(cases: int, first_seed: int, names: list[str]) -> list[Finding]:
    """Play ``cases`` cases over the doors of these names, in turn."""
    findings = []
    with tempfile.TemporaryDirectory(prefix="acf-fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_loops()
        for index in range(cases):
            name = names[index % len(names)]
            place = Path(folder, name)
            place.mkdir(exist_ok=True)
            found = run_case(name, DOORS[name], first_seed + index // len(names), place)
            if found is not None:
                findings.append(found)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case of every door")
    parser.add_argument("--doors", default=",".join(DOORS), help="names, separated by commas")
    options = parser.parse_args()
    findings = fuzz(options.cases, options.seed, options.doors.split(","))
    for finding in findings:
        print(finding)
    print(f"{options.cases} cases over {options.doors}: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
