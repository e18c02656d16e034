"""Sums up what `make coverage` measured, by package, for docs/results/coverage.json.

make coverage
python docs/figures/coverage_rows.py "make coverage"
"""

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from acf.records.provenance import commit_of, machine

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "build" / "coverage.json"
RECORD = ROOT / "docs" / "results" / "coverage.json"
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def package_of(path: str) -> str:
    """The package of `acf` that a source file belongs to; files that stand alone are one package.

    >>> package_of("src/acf/nn/plan.py"), package_of("src/acf/files.py")
    ('nn', 'acf')
    """
    parts = Path(path.split("src/acf/")[-1]).parts
    return parts[0] if len(parts) > 1 else "acf"


def main() -> None:
    """Read the counts of all files and write the record."""
    packages: dict[str, Counter[str]] = {}
    for path, file in json.loads(MEASURED.read_text())["files"].items():
        packages.setdefault(package_of(path), Counter()).update({name: file["summary"][name] for name in COUNTS})
    rows = [{"package": name, **counts} for name, counts in sorted(packages.items())]
    rows.append({"package": "all", **sum(packages.values(), Counter())})
    source = ROOT / "src" / "acf"
    origin = {"command": sys.argv[1], "date": datetime.now(UTC).date().isoformat(), "commit": commit_of(source)}
    RECORD.write_text(json.dumps(origin | {"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
