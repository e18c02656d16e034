"""``.venv-oldest/bin/python -m tests.dependencies.suite_record oldest build/suite-oldest.xml``: a row of the record.

The row is that of the environment it runs in: its Python and versions, and what came of the tests in JUnit files, as
pytest writes them. A file may hold a part of the suite. Where two hold the same test, the later one counts.
"""

import argparse
import json
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.origin import origin

RECORD = Path(__file__).parents[2] / "docs" / "results" / "suites.json"
PACKAGES = ("torch", "triton", "numpy", "numba", "pydantic", "typer", "transformers", "ray", "pytest")
"""Packages whose versions the row gives; None where one is not installed."""


def outcomes(files: list[Path]) -> dict[str, tuple[str, str]]:
    """By the name of a test: ``passed``, ``skipped`` or ``failed``, and the reason where it was skipped."""
    found: dict[str, tuple[str, str]] = {}
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                found[name] = ("failed", "")
            elif skipped is not None:
                found[name] = ("skipped", skipped.get("message", ""))
            else:
                found[name] = ("passed", "")
    return found


def row(environment: str, files: list[Path]) -> dict[str, Any]:
    """What came of the tests in ``files``, in this environment."""
    found = outcomes(files)
    counts = Counter(outcome for outcome, _ in found.values())
    return {
        "environment": environment,
        "python": platform.python_version(),
        "versions": {package: installed(package) for package in PACKAGES},
        "tests": len(found),
        **{outcome: counts[outcome] for outcome in ("passed", "skipped", "failed")},
        "failures": sorted(name for name, (outcome, _) in found.items() if outcome == "failed"),
        "reasons": dict(Counter(reason for outcome, reason in found.values() if outcome == "skipped").most_common()),
    }


def installed(package: str) -> str | None:
    """Its version here."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Put the row into the record, in the place of an earlier one of the same name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", help="name of the row")
    parser.add_argument("files", nargs="+", type=Path, help="what pytest wrote with --junitxml")
    parser.add_argument("--command", help="the command that wrote them; without it make test-ENVIRONMENT")
    options = parser.parse_args()
    kept = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    made = row(options.environment, options.files)
    made |= origin(options.command or f"make test-{options.environment}")
    rows = [each for each in kept if each["environment"] != options.environment] + [made]
    command = "python -m tests.dependencies.suite_record"
    RECORD.write_text(json.dumps(origin(command) | {"rows": rows}, indent=1) + "\n")
    print(f"{options.environment}: {made['passed']} passed, {made['skipped']} skipped, {made['failed']} failed")


if __name__ == "__main__":
    main()
