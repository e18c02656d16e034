"""A machine as a TOML file to start from: every field with its value, and what the shipped files say about it."""

import json
import re
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

from acf.errors import ArchitectureError
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.registry import ARCHITECTURES, CONFIGS, KINDS, find_architecture

_COMMENTED = re.compile(r"^(\w+)\s*=[^#]*#\s*(.*)$")
_COMMENT_COLUMN = 32


def template(architecture: str | Path | AcceleratorSpec) -> str:
    """TOML that loads back as the Spec of ``architecture``, with a comment beside the fields that have one.

    >>> [line for line in template("acf-512").splitlines() if line.startswith("value_bytes")]
    ['value_bytes = 2                 # bf16']
    """
    name, spec = find_architecture(architecture)
    comments = _comments(name, spec)
    own = [item.name for item in fields(spec) if item.name != "name"]
    return "\n".join(
        [
            *_heading(name, spec),
            f"kind = {json.dumps(_kind(spec))}",
            f'# name = "my-{name}"'.ljust(_COMMENT_COLUMN) + "# label of its results; without it: the name of the file",
            *(_line(key, getattr(spec, key), comments.get(key, "")) for key in own),
            "",
        ]
    )


def _heading(name: str, spec: AcceleratorSpec) -> list[str]:
    """What the machine is, from the docstring of its Spec."""
    lines = cleandoc(type(spec).__doc__ or "").splitlines()
    return [f"# {name} ({type(spec).__name__})", *(f"# {line}".rstrip() for line in lines), ""]


def _kind(spec: AcceleratorSpec) -> str:
    kind = type(spec)
    return kind.kind if KINDS.get(getattr(kind, "kind", "")) is kind else f"{kind.__module__}:{kind.__qualname__}"


def _comments(name: str, spec: AcceleratorSpec) -> dict[str, str]:
    """Comments by field: those of the file of that name, over those of the first shipped file of its kind.

    A comment of another file stands only where the value is the same: it may explain that value.
    """
    same_kind = next((each for each, kind in ARCHITECTURES.items() if kind is type(spec)), None)
    found: dict[str, str] = {}
    for file in dict.fromkeys(each for each in (same_kind, name) if each is not None):
        path = CONFIGS / f"{file}.toml"
        if not path.is_file():
            continue
        other = find_architecture(file)[1]
        matches = (_COMMENTED.match(line) for line in path.read_text(encoding="utf-8").splitlines())
        said = {match[1]: match[2] for match in matches if match}
        found |= {key: text for key, text in said.items() if getattr(other, key, None) == getattr(spec, key, None)}
    return found


def _line(key: str, value: Any, comment: str) -> str:
    text = f"{key} = {_toml(key, value)}"
    return f"{text.ljust(_COMMENT_COLUMN - 1)} # {comment}" if comment else text


def _toml(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(key, each) for each in value)}]"
    if not isinstance(value, str | int | float):
        raise ArchitectureError(
            f"{key} is a {type(value).__name__}, which TOML cannot hold; build variants of this machine in Python"
        )
    if isinstance(value, float):
        short = f"{value:g}"  # 7.68e+10 rather than 76800000000.0; a float also where it reads like an integer
        return short if float(short) == value and not short.lstrip("-").isdigit() else repr(value)
    return json.dumps(value) if isinstance(value, str | bool) else str(value)
