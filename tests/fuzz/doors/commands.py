"""Every command of `acf` with words that mean little, and outputs that cannot be written."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from acf.files import cache_directory
from tests.fuzz.case import LongWork, stopped_after
from tests.fuzz.doors.command import run_command
from tests.fuzz.doors.traces import compile_loops, tiny_trace

WORK_SECONDS = 2.0
"""Of processor time after which a command counts as working on what it was given: a large number may be meant."""

WAITING_SECONDS = 20.0
"""The same for a command that waits for another process."""

WORDS = (
    "", "0", "-1", "1", "3", "1e999", "nan", "inf", "-inf", "1e-300", "9" * 40, "0.5,nan", ",,", "a,b", "a" * 300,
    "x/y",
    "[red]x[/red]", "[/]", "../outside", "/dev/null", "/dev/full", "/proc/none/x", "\u202e", "\udcff", "no:such",
    "mesh_columns=0", "dense", "tensordash", "nonsense", "--help", "2:4", "rigl-90/block=0", "dense,dense", "1,2,,3",
    "folder/", "link",
)  # fmt: skip

CACHE = cache_directory() / "fuzz"
"""Compiled code of all cases, kept between campaigns: the time of a case would not be enough to compile it."""

SMALL: dict[str, tuple[str, ...]] = {
    "simulate": ("TRACE", "--on", "tensordash"),
    "compare": ("TRACE", "--on", "tensordash", "--baseline", "tensorcore"),
    "traces": ("TRACE",),
    "architectures": (),
    "report": ("RECORD", "--out", "page.html"),
    "sweep": ("TRACE", "--base", "tensordash", "--set", "depth=2,3", "--jobs", "1"),
    "watch": ("RUN", "--json"),
    "doctor": ("--layers", "tests.fuzz.doors.commands:small_model", "--block", "8"),
    "reproduce": ("--only", "T1"),
    "demo": ("--steps", "1"),
    "capture": ("squeezenet", "--steps", "1", "--batch", "2"),
    "epochs": ("vgg8", "--epochs", "1", "--examples", "4", "--held-out", "2"),
    "bench kernels": ("--device", "cpu", "--sizes", "64"),
    "bench accuracy": (
        *("--methods", "dense", "--network", "small", "--data-set", "digits", "--width", "8", "--epochs", "1"),
        *("--examples", "64", "--batch", "32", "--seeds", "1", "--device", "cpu"),
    ),
    "bench training": ("--task", "small", "--variants", "dense", "--steps", "1", "--seeds", "1", "--device", "cpu"),
    "bench pong": (
        "--device",
        "cpu",
    ),
    "bench resnet50": ("--size", "small", "--steps", "1", "--seeds", "1", "--systems", "dense", "--device", "cpu"),
    "bench transformer": ("--size", "small", "--steps", "1", "--seeds", "1", "--systems", "dense", "--device", "cpu"),
    "bench cnn": ("--size", "small", "--steps", "1", "--seeds", "1", "--systems", "dense", "--device", "cpu"),
    "bench tracking": ("--methods", "dts", "--steps", "1"),
    "bench zeros": ("squeezenet", "--steps", "1"),
    "bench simulators": (),
    "bench ablation": ("--what", "prefetch"),
    "bench fabric": ("--sparsity", "0.9"),
    "bench offload": ("--workload", "cnn", "--steps", "1"),
    "rtl units": (),
    "rtl emit": ("mac", "--out", "mac.v"),
    "rtl describe": ("--on", "acf-512"),
    "rtl synth": ("popcount",),
    "rtl area": ("mac", "--liberty", "cells.lib"),
    "rtl costs": ("--liberty", "cells.lib", "--node", "180", "--on", "acf-512"),
    "rtl power": ("mac", "--cycles", "1"),
    "rtl lockstep": ("--programs", "1"),
    "rtl sim": ("--timing", "4"),
    "rtl device": ("--programs", "1"),
    "rtl layers": (),
    "rtl step": (),
}
"""Every command with words that make it small."""


def small_model() -> tuple[Any, Any]:
    """For `acf doctor --layers`."""
    import torch
    from torch import nn

    return nn.Sequential(nn.Linear(32, 32)), torch.ones(4, 32)


@cache
def build_native_code() -> None:
    """Let the commands that compile on first use do so: CPU kernels, the streams of the torch device, loops."""
    compile_loops()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), _environment():
        for command in ("doctor", "bench offload"):
            run_command(*command.split(), *SMALL[command])


@cache
def flags_of(command: str) -> tuple[str, ...]:
    """The options of a command; none that starts other processes or waits for somebody."""
    import typer

    from acf.cli import app

    found: Any = typer.main.get_command(app)
    context = typer.Context(found)
    for word in command.split():
        found = found.get_command(context, word)
        context = typer.Context(found, parent=context)
    named = [flag for option in found.get_params(context) for flag in option.opts if flag.startswith("--")]
    return tuple(flag for flag in named if flag not in ("--page", "--workers", "--jobs", "--ray", "--every", "--help"))


def all_commands() -> Iterator[str]:
    """The names of all commands."""
    import typer

    from acf.cli import app

    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        yield from (f"{name} {inner}" for inner in command.commands) if hasattr(command, "commands") else (name,)


def command_line(rng: Random, folder: Path) -> None:
    """A command with an option more or less, or a word that means little in its place."""
    build_native_code()
    command = rng.choice(sorted(SMALL))
    words = [_file(folder, word) for word in SMALL[command]]
    for _ in range(rng.choice((1, 1, 1, 2))):
        words = _changed(rng, words, flags_of(command))
    _run(folder, command.split() + words)


def _changed(rng: Random, words: list[str], flags: tuple[str, ...]) -> list[str]:
    action, place = rng.random(), rng.randrange(len(words) + 1)
    if action < 0.6 and flags:
        return [*words, rng.choice(flags), rng.choice(WORDS)]
    if action < 0.8 and place < len(words):
        return [*words[:place], rng.choice(WORDS), *words[place + 1 :]]
    if action < 0.9:
        return [*words[:place], *words[place + 1 :]]
    return [*words[:place], rng.choice(WORDS), *words[place:]]


def output_place(rng: Random, folder: Path) -> None:
    """An output that is a folder, cannot be made, is a link, or has a name that no file system takes."""
    build_native_code()
    command, flag = rng.choice((
        ("simulate", "--out"), ("simulate", "--timeline"), ("compare", "--csv"), ("compare", "--out"),
        ("demo", "--out"),
        ("capture", "--out"), ("report", "--out"), ("sweep", "--csv"), ("bench fabric", "--out"), ("epochs", "--out"),
        ("bench training", "--out"), ("bench training", "--plot"), ("bench training", "--logs"), ("rtl emit", "--out"),
        ("bench accuracy", "--out"), ("bench tracking", "--out"), ("bench zeros", "--out"), ("reproduce", "--out"),
        ("bench ablation", "--out"), ("bench resnet50", "--out"), ("bench kernels", "--out"), ("sweep", "--name"),
        ("bench resnet50", "--name"), ("bench offload", "--timeline"),
    ))  # fmt: skip
    place = rng.choice((
        "folder", "/proc/none/x", "/sys/x", "/dev/full", "/dev/null", "file/below", "a" * 300, "a/" * 2000, "",
        ".", "..",
        "link", "loop", "[red]name[/red].json", "\udcff.json", "new/sub/x.json", "../outside/x",
    ))  # fmt: skip
    if flag != "--name" and place.startswith(".."):
        place = "inside"  # a path that the user names may lie anywhere, a name may not
    _run(folder, [*command.split(), *(_file(folder, word) for word in SMALL[command]), flag, place])


def _file(folder: Path, word: str) -> str:
    """The files that commands read, in the folder of the case."""
    if word == "TRACE":
        return str(tiny_trace(folder))
    if word == "RECORD":
        record = folder / "result.json"
        if not record.exists():
            run_command("simulate", str(tiny_trace(folder)), "--on", "tensordash", "--out", str(record))
        return str(record)
    if word == "RUN":
        from acf.metrics import RunLog

        if not (folder / "run").exists():
            with RunLog(folder / "run", total_steps=1) as log:
                log.step(1, 0.5)
        return str(folder / "run")
    return word


def _run(folder: Path, words: list[str]) -> None:
    (folder / "folder").mkdir(exist_ok=True)
    (folder / "file").write_text("x")
    for name, target in (("link", "nowhere"), ("loop", "loop")):
        if not os.path.lexists(folder / name):
            os.symlink(target, folder / name)
    with _environment(), stopped_after(WORK_SECONDS, LongWork), stopped_after(WAITING_SECONDS, LongWork, wall=True):
        run_command(*words)


@contextmanager
def _environment() -> Iterator[None]:
    with patch.dict(os.environ, {"ACF_CACHE_DIR": str(CACHE), "COLUMNS": "120"}):
        os.environ.pop("ACF_DATA", None)
        yield
