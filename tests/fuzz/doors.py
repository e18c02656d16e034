"""The doors of the package through which a user's files and values come in."""

import json
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from torch import nn

import acf
from acf import runtime
from acf.checksums import CHECKSUMS_KEY, checksums
from acf.masks import SET, GradualPruning
from acf.metrics import TopologyStore
from acf.sim.registry import load_architecture
from acf.sweep import Axes, PlayedTraces, Sweep, run_sweep
from acf.trace.file import FORMAT
from acf.trace.op import TracedConv
from tests.fuzz.case import Door
from tests.fuzz.values import damaged, mutated, strange

MACHINES = ("tensorcore", "tensordash", "sat", "spartann", "acf-1", "gpu-v100")
CONFIGS = Path(acf.__file__).parent / "sim" / "configs"


@cache
def small_step() -> acf.Trace:
    """A convolution and a linear layer, all three passes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16))
    with acf.capture(model) as trace:
        model(torch.randn(2, 4, 8, 8)).square().mean().backward()
    return trace


@cache
def _trace_parts() -> tuple[dict[str, Any], dict[str, Any]]:
    from dataclasses import asdict

    trace = small_step()
    shapes = {key: list(bits.shape) for key, bits in trace.tensors.items()}
    header = {
        "label": trace.label,
        "ops": [asdict(op) for op in trace.ops],
        "shapes": shapes,
        "vector_ops": [asdict(op) for op in trace.vector_ops],
    }
    return json.loads(json.dumps(header)), {key: bits.packed for key, bits in trace.tensors.items()}


@cache
def compile_loops() -> None:
    """Play the step on every machine once: compiled loops are not part of any case's time."""
    for name in MACHINES:
        acf.simulate(small_step(), name)


def trace_header(rng: Random, folder: Path) -> None:
    """A well-formed trace file with some values of its header changed, played on a machine."""
    header, packed = _trace_parts()
    for _ in range(rng.choice((1, 1, 2, 3))):
        header = mutated(rng, header)
    text = json.dumps(header)
    sums = checksums({FORMAT: text.encode(), **{key: bits.data for key, bits in packed.items()}})
    path = folder / "step.safetensors"
    path.write_bytes(save(packed, metadata={FORMAT: text, CHECKSUMS_KEY: sums}))
    acf.simulate(acf.Trace.load(path), rng.choice(MACHINES))


def trace_bytes(rng: Random, folder: Path) -> None:
    """A damaged trace file."""
    whole = folder / "whole.safetensors"
    if not whole.exists():
        small_step().save(whole)
    path = folder / "damaged.safetensors"
    path.write_bytes(damaged(rng, whole.read_bytes()))
    acf.Trace.load(path)


@cache
def _machines() -> list[dict[str, Any]]:
    return [tomllib.loads(path.read_text()) for path in sorted(CONFIGS.glob("*.toml")) if path.stem in MACHINES]


def machine(rng: Random, folder: Path) -> None:
    """A machine's file with one value changed, playing a small step."""
    values = dict(rng.choice(_machines()))
    key = rng.choice(sorted(set(values) - {"kind", "base"}))
    values[key] = mutated(rng, values[key])
    path = folder / "machine.toml"
    path.write_text("\n".join(f"{name} = {_toml(value)}" for name, value in values.items()))
    spec = load_architecture(path)
    acf.simulate(acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))]), spec)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        return '""'
    return (
        {float("inf"): "inf", float("-inf"): "-inf"}.get(value) or ("nan" if value != value else json.dumps(value))
        if isinstance(value, float)
        else json.dumps(value)
    )


def _sparse_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 4))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


def checkpoint(rng: Random, folder: Path) -> None:
    """A checkpoint with damaged bytes, or with values that are not what they should be."""
    model, path = _sparse_model(), folder / "run.pt"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    controller = acf.attach(model, optimizer, acf.BlockDST(total_steps=10, every=2))
    parts = {"model": model, "optimizer": optimizer, "topology": controller}
    if rng.random() < 0.3:
        acf.save_checkpoint(path, **parts)
        path.write_bytes(damaged(rng, path.read_bytes()))
    else:
        state = {name: part.state_dict() for name, part in parts.items()}
        name = rng.choice(sorted(state))
        torch.save({**state, name: _strange_state(rng, state[name])}, path)
    acf.load_checkpoint(path, **parts)


def _strange_state(rng: Random, state: Any) -> Any:
    if not isinstance(state, dict) or not state:
        return mutated(rng, state)
    key = rng.choice(sorted(state, key=str))
    value = state[key]
    if isinstance(value, torch.Tensor):
        changes = (
            lambda tensor: tensor[:0], lambda tensor: tensor.double(), lambda tensor: torch.cat([tensor, tensor]),
            lambda tensor: tensor.reshape(-1), lambda tensor: tensor * 0 - 1, lambda tensor: tensor.to(torch.int16),
            lambda tensor: None, lambda tensor: "x",
        )  # fmt: skip
        return {**state, key: rng.choice(changes)(value)}
    return {**state, key: _strange_state(rng, value) if isinstance(value, dict) else mutated(rng, value)}


def saved_model(rng: Random, folder: Path) -> None:
    """A damaged file of `acf.save_sparse`."""
    path = folder / "model.safetensors"
    acf.save_sparse(_sparse_model(), path)
    path.write_bytes(damaged(rng, path.read_bytes()))
    acf.load_sparse(path)


@cache
def _program_image() -> bytes:
    rng = np.random.default_rng(0)
    blocks = runtime.WeightBlocks.from_mask(rng.random((2, 2)) < 0.6, (16, 16))
    return runtime.Program(runtime.Product(phase="forward", rows=8, weight=blocks)).to_bytes()


def program(rng: Random, folder: Path) -> None:
    """A damaged image of a device's program."""
    str(runtime.Program.from_bytes(damaged(rng, _program_image())))


SETTINGS: tuple[Callable[[Any], object], ...] = (
    acf.BlockSparsity,
    lambda value: acf.sparsify_(nn.Sequential(nn.Linear(16, 16)), acf.BlockSparsity(0.5, block=value)),
    lambda value: acf.BlockSparsity(0.5, distribution=value),
    lambda value: acf.BlockDST(total_steps=value),
    lambda value: acf.BlockDST(total_steps=100, every=value),
    lambda value: acf.BlockDST(total_steps=100, every=10, fraction=value),
    lambda value: acf.BlockDST(total_steps=100, every=10, candidates=value),
    lambda value: acf.BlockDST(total_steps=100, every=10, stop_at=value),
    lambda value: SET(total_steps=100, every=10, start_at=value),
    lambda value: SET(total_steps=100, every=10, seed=value),
    lambda value: GradualPruning(total_steps=100, every=value),
    lambda value: TracedConv(kernel_size=(value, 3), input_size=(8, 8)),
    lambda value: TracedConv(kernel_size=(3, 3), input_size=(8, 8), padding=(0, value)),
    lambda value: acf.spec("acf-512", mesh_columns=value),
    lambda value: acf.spec("acf-512", clock_hz=value),
    lambda value: acf.spec("tensordash", name=value),
    lambda value: acf.PlanOptions(checks=value),
    lambda value: acf.PlanOptions(blocks=(value,)),
    lambda value: runtime.WeightBlocks.dense(16, value),
    lambda value: acf.simulate(value, "tensorcore"),
    lambda value: acf.simulate(small_step(), value),
    lambda value: acf.Trace.from_matmuls([acf.Matmul("fc", "forward", value, np.ones((4, 4)))]),
)
"""Settings and arguments of public names, as functions of one value."""


def settings(rng: Random, folder: Path) -> None:
    """A strange value in place of a setting."""
    rng.choice(SETTINGS)(strange(rng))


RESULTS = Path(__file__).parents[2] / "docs" / "results"
MOST_RECORD_BYTES = 60_000


@cache
def _records() -> list[tuple[str, Any]]:
    small = (path for path in sorted(RESULTS.glob("*.json")) if path.stat().st_size <= MOST_RECORD_BYTES)
    return [(path.name, json.loads(path.read_text())) for path in small]


def record(rng: Random, folder: Path) -> None:
    """A record of a command with some values changed, or damaged bytes, drawn by `acf report`."""
    name, document = rng.choice(_records())
    path = folder / name
    if rng.random() < 0.2:
        path.write_bytes(damaged(rng, json.dumps(document).encode()))
    else:
        for _ in range(rng.choice((1, 1, 2, 4))):
            document = mutated(rng, document)
        path.write_text(json.dumps(document))
    _command("report", str(path), "--out", str(folder / "report.html"))


def store(rng: Random, folder: Path) -> None:
    """A damaged SQLite record of a run's topology."""
    whole, path = folder / "whole.sqlite", folder / "damaged.sqlite"
    if not whole.exists():
        with TopologyStore(whole) as made:
            made(1, [acf.LayerFigures(1, f"layer{number}", 0.1, 0.2, 0.3) for number in range(20)])
    path.write_bytes(damaged(rng, whole.read_bytes()))
    with TopologyStore(path) as read:
        read.read()
        read.read_gradients()


def sweep_record(rng: Random, folder: Path) -> None:
    """A damaged SQLite record of a sweep."""
    whole, path = folder / "whole.sqlite", folder / "sweep.sqlite"
    if not whole.exists():
        trace = folder / "step.safetensors"
        acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))]).save(trace)
        axes = Axes({"clock_hz": (1e9, 2e9)})
        run_sweep(Sweep("fuzz", axes, PlayedTraces((trace,), "tensordash"), whole))
    path.write_bytes(damaged(rng, whole.read_bytes()))
    _command("report", str(path), "--out", str(folder / "report.html"))


SWEEP = {
    "base": "tensordash",
    "name": "fuzz",
    "set": {"depth": [2, 3], "lanes": [8, 16]},
}


def sweep_file(rng: Random, folder: Path) -> None:
    """A sweep's file with a value changed; nothing is played that has more than a few points."""
    from acf.sweep.file import read_sweep_file

    path = folder / "sweep.toml"
    values = mutated(rng, SWEEP)
    text = "\n".join(f"{name} = {_toml(value)}" for name, value in values.items()) if isinstance(values, dict) else "x"
    path.write_text(text)
    read_sweep_file(path)


NAMES = ("simulate", "compare", "architectures", "report", "traces", "sweep", "watch", "doctor")
WORDS = (
    "--on", "--out", "--json", "--csv", "--sparsity", "--set", "--base", "--baseline", "--seed", "--jobs", "tensordash",
    "acf-512", "nonsense", "", "-1", "1e999", "nan", "\u202e", "[red]x", "../x", "/dev/null", "a" * 300, "--help",
    "mesh_columns=0",
)  # fmt: skip


def command_line(rng: Random, folder: Path) -> None:
    """A command with words that mean little in this place."""
    trace = folder / "step.safetensors"
    if not trace.exists():
        acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))]).save(trace)
    words = [rng.choice((*WORDS, str(trace), str(folder))) for _ in range(rng.randrange(5))]
    _command(rng.choice(NAMES), *words)


def _command(*words: str) -> None:
    """Run a command in this process; what is no exit of its own is raised."""
    from typer.testing import CliRunner

    from acf.cli import app

    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception


DOORS: dict[str, Door] = {
    "trace_header": trace_header,
    "trace_bytes": trace_bytes,
    "machine": machine,
    "checkpoint": checkpoint,
    "saved_model": saved_model,
    "program": program,
    "settings": settings,
    "record": record,
    "store": store,
    "sweep_record": sweep_record,
    "sweep_file": sweep_file,
    "command_line": command_line,
}
"""Every door by name."""
