"""Trace files, well-formed and damaged, and the operands that a trace is made of."""

import json
import tempfile
from contextlib import chdir, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import nn

import acf
from acf.checksums import CHECKSUMS_KEY, checksums
from acf.errors import AcfError
from acf.trace.file import FORMAT
from tests.fuzz.doors.command import run_command
from tests.fuzz.values import damaged, mutated

MACHINES = ("tensorcore", "tensordash", "sat", "spartann", "acf-1", "gpu-v100")
"""One of every kind, none of them large."""


COMMANDS = (
    ("traces",),
    ("simulate", "--on", "acf-1", "--dump", "products"),
    ("simulate", "--on", "acf-1", "--dump", "program"),
    ("simulate", "--on", "acf-1", "--dump", "x"),
    ("simulate", "--on", "acf-1", "--timeline", "t.json", "--json"),
    ("compare", "--on", "tensordash,sat", "--baseline", "tensorcore", "--csv", "t.csv"),
)
"""What is done with a trace, whose path follows the name of the command."""


@cache
def small_step() -> acf.Trace:
    """A convolution and a linear layer, all three passes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16))
    with acf.capture(model) as trace:
        model(torch.randn(2, 4, 8, 8)).square().mean().backward()
    return trace


def tiny_trace(folder: Path) -> Path:
    """The file of one small product."""
    path = folder / "tiny.safetensors"
    if not path.exists():
        acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))]).save(path)
    return path


@cache
def _parts() -> tuple[dict[str, Any], dict[str, Any]]:
    trace = small_step()
    header = {
        "label": trace.label,
        "ops": [asdict(op) for op in trace.ops],
        "shapes": {key: list(bits.shape) for key, bits in trace.tensors.items()},
        "vector_ops": [asdict(op) for op in trace.vector_ops],
    }
    return json.loads(json.dumps(header)), {key: bits.packed for key, bits in trace.tensors.items()}


@cache
def compile_loops() -> None:
    """Play the step on every machine and by every command once: compiling loops is not part of any case's time."""
    for name in MACHINES:
        acf.simulate(small_step(), name)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        small_step().save(path := Path("step.safetensors"))
        for words in COMMANDS:
            with suppress(AcfError):
                run_command(words[0], str(path), *words[1:])


def _write_changed(rng: Random, path: Path) -> Path:
    """A trace whose header has other values and whose checksums are right."""
    header, packed = _parts()
    for _ in range(rng.choice((1, 1, 2, 3))):
        header = mutated(rng, header)
    text = json.dumps(header)
    sums = checksums({FORMAT: text.encode(), **{key: bits.data for key, bits in packed.items()}})
    path.write_bytes(save(packed, metadata={FORMAT: text, CHECKSUMS_KEY: sums}))
    return path


def trace_header(rng: Random, folder: Path) -> None:
    """A well-formed trace file with some values of its header changed, played on a machine."""
    compile_loops()
    acf.simulate(acf.Trace.load(_write_changed(rng, folder / "step.safetensors")), rng.choice(MACHINES))


def trace_command(rng: Random, folder: Path) -> None:
    """The same, given to a command that shows, lowers, compares or records it."""
    compile_loops()
    path = _write_changed(rng, folder / "step.safetensors")
    words = rng.choice(COMMANDS)
    run_command(words[0], str(path), *words[1:])


def trace_bytes(rng: Random, folder: Path) -> None:
    """A damaged trace file."""
    whole = folder / "whole.safetensors"
    if not whole.exists():
        small_step().save(whole)
    path = folder / "damaged.safetensors"
    path.write_bytes(damaged(rng, whole.read_bytes()))
    acf.Trace.load(path)
