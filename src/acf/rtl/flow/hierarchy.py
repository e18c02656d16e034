"""Yosys' statistics of a hierarchy: which module holds which cells, and how often it is there."""

import json
from collections.abc import Mapping

Cells = Mapping[str, Mapping[str, int]]
"""Number of cells by type, of every module by name; a type may be a module."""


def cells_of_modules(statistics: str) -> Cells:
    """What Yosys' ``stat -json`` says about every module."""
    modules = json.loads(statistics)["modules"]
    return {name.removeprefix("\\"): dict(facts["num_cells_by_type"]) for name, facts in modules.items()}


def instances(cells: Cells, module: str, count: int = 1) -> dict[str, int]:
    """How often every module is there under ``module``, itself first.

    >>> instances({"top": {"pair": 2}, "pair": {"unit": 2, "LUT6": 1}, "unit": {"LUT6": 4}}, "top")
    {'top': 1, 'pair': 2, 'unit': 4}
    """
    found = {module: count}
    for cell, number in cells[module].items():
        if cell in cells:
            for name, inside in instances(cells, cell, count * number).items():
                found[name] = found.get(name, 0) + inside
    return found


def all_cells(cells: Cells, counts: Mapping[str, int]) -> dict[str, int]:
    """Primitive cells of the whole hierarchy, by type."""
    found: dict[str, int] = {}
    for module, count in counts.items():
        for cell, number in cells[module].items():
            if cell not in cells:
                found[cell] = found.get(cell, 0) + count * number
    return dict(sorted(found.items()))
