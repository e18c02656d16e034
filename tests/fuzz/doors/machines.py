"""Machines and sweeps as TOML files."""

import json
import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import acf
from acf.sim.registry import CONFIGS, load_architecture
from acf.sweep.file import read_sweep_file
from tests.fuzz.doors.command import run_command
from tests.fuzz.doors.traces import compile_loops, tiny_trace
from tests.fuzz.values import damaged, mutated

MOST_MACS = 4096
"""Of a machine that a case plays: what the large ones share with the small is changed in these."""


@cache
def _files() -> list[dict[str, Any]]:
    return [tomllib.loads(path.read_text()) for path in sorted(CONFIGS.glob("*.toml"))]


def toml(value: Any) -> str:
    """A value as TOML, which has no null."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return '""' if value is None else json.dumps(value)


def toml_lines(values: dict[str, Any]) -> str:
    """A file of such values."""
    return "\n".join(f"{json.dumps(str(name))} = {toml(value)}" for name, value in values.items())


def machine(rng: Random, folder: Path) -> None:
    """The file of any machine with one value changed, playing a small product."""
    compile_loops()
    values = dict(rng.choice(_files()))
    key = rng.choice(sorted(values))
    values[key] = mutated(rng, values[key])
    path = folder / "machine.toml"
    path.write_text(toml_lines(values))
    spec = load_architecture(path)
    if spec.macs_per_cycle <= MOST_MACS:
        product = acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))
        acf.simulate(acf.Trace.from_matmuls([product]), spec)


def machine_bytes(rng: Random, folder: Path) -> None:
    """The file of a machine with damaged bytes, shown as a template."""
    path = folder / "machine.toml"
    path.write_bytes(damaged(rng, rng.choice(sorted(CONFIGS.glob("*.toml"))).read_bytes()))
    run_command("architectures", "--show", str(path))


SWEEP = {
    "base": "tensordash",
    "name": "fuzz",
    "traces": ["tiny.safetensors"],
    "set": {"depth": [2, 3], "lanes": [8, 16]},
    "optuna": 0,
    "seed": 0,
}


def sweep_file(rng: Random, folder: Path) -> None:
    """A sweep's file with values changed, or damaged bytes."""
    path = folder / "sweep.toml"
    values = mutated(rng, SWEEP)
    text = toml_lines(values) if isinstance(values, dict) else "x"
    path.write_bytes(damaged(rng, text.encode()) if rng.random() < 0.3 else text.encode())
    read_sweep_file(path)


def sweep_played(rng: Random, folder: Path) -> None:
    """A sweep of two points over a field with a strange value, in a folder that may hold an earlier sweep."""
    compile_loops()
    trace = tiny_trace(folder)
    field = rng.choice(("depth", "lanes", "clock_hz", "name", "tile_rows", "nonsense", "on_chip_bytes"))
    value = mutated(rng, [2, 3])
    words = toml(value).strip("[]")
    run_command("sweep", str(trace), "--base", "tensordash", "--set", f"{field}={words}", "--jobs", "1", "--json")
