"""A design taken apart: every module alone with black boxes for what is inside it, worked on once and kept.

A fabric has hundreds of thousands of cells and two dozen different modules. Whatever is asked of it (LUTs, gates) is
asked of each module by itself, several at a time, and kept in the cache by what the module is; a second run, or one
after a change to a single module, takes what it finds.
"""

import hashlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from acf.files import cache_directory, write_whole

_MODULE = re.compile(r"(?m)^(?:attribute [^\n]*\n)*module \\(\S+)$.*?^end$\n?", re.S)
_PORT = re.compile(r"(?m)^ +wire width \d+ (?:input|output|inout) \d+ +\S+$")
_CELL = re.compile(r"(?m)^\s*cell \\(\S+) ")

Modules = Mapping[str, str]
"""RTLIL text of every module by its name."""


def split_modules(rtlil: str) -> dict[str, str]:
    """The modules of an RTLIL text by name."""
    return {match[1]: match[0] for match in _MODULE.finditer(rtlil)}


def modules_in(modules: Modules, name: str) -> list[str]:
    """The different modules directly inside a module."""
    return sorted({cell for cell in _CELL.findall(modules[name]) if cell in modules})


def all_inside(modules: Modules, name: str) -> list[str]:
    """A module and the different modules inside it at any depth."""
    found = {name}
    for inner in modules_in(modules, name):
        found.update(all_inside(modules, inner))
    return sorted(found)


def alone(modules: Modules, name: str) -> str:
    """RTLIL of one module, in which those inside it have ports and nothing else."""
    boxes = [_black_box(inner, modules[inner]) for inner in modules_in(modules, name)]
    return "".join([*boxes, modules[name].replace("attribute \\top 1\n", "")])


def _black_box(name: str, text: str) -> str:
    return "\n".join(["attribute \\blackbox 1", f"module \\{name}", *_PORT.findall(text), "end", ""])


def kept(kind: str, work: Callable[..., Any], name: str, *inputs: str) -> Any:
    """``work(name, *inputs)``, or what the same code and Yosys gave for the same inputs before: plain values."""
    key = repr((inspect.getsource(sys.modules[work.__module__]), name, inputs, version("pyosys")))
    path = cache_directory() / "rtl" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        made = work(name, *inputs)
        write_whole(path, json.dumps(made).encode())
        return made


def for_each(names: list[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """``work`` of every name, as many at a time as there are cores to run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=cores) as pool:
        return dict(zip(names, pool.map(work, names), strict=True))
