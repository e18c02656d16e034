"""``python -m tests.coverage_record build/coverage.json``: lines and branches that the suite ran, by package.

`make coverage` calls it with what ``coverage json`` wrote; the record stands in ``docs/results``.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path, PurePath
from typing import Any

from tests.origin import origin

RECORD = Path(__file__).parents[1] / "docs" / "results" / "coverage.json"
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def package_of(path: str) -> str:
    """The package below `acf` that a file belongs to; the modules of `acf` itself are together.

    >>> package_of("src/acf/nn/linear.py"), package_of("src/acf/files.py")
    ('acf.nn', 'acf')
    """
    folders = PurePath(path.partition("acf/")[2]).parts[:-1]
    return ".".join(("acf", *folders[:1]))


def rows(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Statements and branches of every package, those that ran, and their shares; the last row is the whole."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for path, entry in measured["files"].items():
        for name in (package_of(path), "all"):
            for count in COUNTS:
                sums[name][count] += entry["summary"][count]
    ordered = sorted(sums, key=lambda name: (name == "all", name))
    return [{"package": name, **sums[name], **_shares(sums[name])} for name in ordered]


def _shares(counts: dict[str, int]) -> dict[str, float]:
    return {
        "lines": counts["covered_lines"] / max(1, counts["num_statements"]),
        "branches": counts["covered_branches"] / max(1, counts["num_branches"]),
    }


def main() -> None:
    """Write the record and print its last row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", type=Path, help="what coverage json wrote")
    parser.add_argument("--out", type=Path, default=RECORD, help="the record to write")
    options = parser.parse_args()
    found = rows(json.loads(options.measured.read_text()))
    options.out.write_text(json.dumps(origin("make coverage") | {"rows": found}, indent=1) + "\n")
    print(f"{found[-1]['lines']:.1%} of the lines, {found[-1]['branches']:.1%} of the branches")


if __name__ == "__main__":
    main()
