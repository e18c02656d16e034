"""``python -m tests.load``: a million moves and packets, 100,000 launches; nothing grows or is lost."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.load.footprint import Load
from tests.load.launches import load_launches
from tests.load.moves import load_moves
from tests.load.packets import load_packets
from tests.origin import origin

LOADS: dict[str, tuple[Callable[[int], Load], int]] = {
    "moves": (load_moves, 1_000_000),
    "packets": (load_packets, 1_000_000),
    "launches": (load_launches, 100_000),
}
"""What is loaded, and how often."""

MOST_GROWN_MIB = 64.0
"""Memory that may be taken after the first tenth of a load: what is remembered of it, up to its bound."""


def run_loads(share: float) -> list[Load]:
    """Every load, at a ``share`` of its count."""
    loads = []
    for load, count in LOADS.values():
        loads.append(load(max(1, round(share * count))))
        print(_line(loads[-1]), flush=True)
    return loads


def findings(loads: list[Load]) -> list[str]:
    """What went wrong in any of them."""
    found = [f"{each.what}: {wrong}" for each in loads for wrong in each.wrong]
    found += [f"{each.what}: {each.grown_mib:.0f} MiB more" for each in loads if each.grown_mib > MOST_GROWN_MIB]
    return found + [f"{each.what}: {each.grown_files} files more" for each in loads if each.grown_files > 0]


def _line(load: Load) -> str:
    figures = ", ".join(f"{name} {value:g}" for name, value in load.figures.items())
    return (
        f"{load.count:>9,} {load.what}: {load.seconds:.1f} s, {load.per_second:,.0f} per second, "
        f"{load.grown_mib:+.1f} MiB, {load.grown_files:+d} files; {figures}"
    )


def _record(loads: list[Load], wrong: list[str], command: str) -> dict[str, Any]:
    return {**origin(command), "wrong": wrong, "rows": [each.to_dict() for each in loads]}


def main() -> int:
    """Run all loads; exit code 1 where something grew, was lost or was reordered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the counts")
    parser.add_argument("--out", type=Path, help="JSON to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loads = run_loads(options.share)
    wrong = findings(loads)
    print("\n".join(wrong) or "nothing grew, was lost or was reordered")
    if options.out is not None:
        command = "python -m tests.load" + ("" if options.share == 1.0 else f" --share {options.share:g}")
        options.out.write_text(json.dumps(_record(loads, wrong, command), indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
