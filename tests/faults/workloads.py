"""What is killed and run out of disk: the commands that keep runs and go on with them, and a user's own loop."""

import gzip
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import acf
from acf.cli import main, one_line
from acf.errors import AcfError
from acf.ops.cpu.build import load_library
from tests.faults import loop

EVALUATION = (
    "--seeds 1 --steps 6 --measurements 2 --checkpoint-every 2 --machines tensorcore-512 --out runs --device cpu"
)
COMMANDS = {
    "training": "bench training --task small --data ../data --variants dense,static-75/block=16,rigl-75/block=16"
    " --seeds 1 --steps 6 --batch 16 --width 16 --examples 64 --measurements 2 --out training.json --logs logs",
    "accuracy": "bench accuracy --data ../data --data-set fashion-mnist --network small --methods dense,dst-75,dts-0.5"
    " --seeds 2 --width 16 --epochs 1 --batch 32 --examples 64 --device cpu --out accuracy.json",
    "resnet50": "bench resnet50 --size small --systems dense,rigl --sparsity 0.5 --block 16 --batch 16"
    f" --examples 64 --captured 2 {EVALUATION}",
    "transformer": "bench transformer --size small --systems dense,rigl --sparsity 0.5 --block 16 --batch 8"
    f" --captured 2 --test-sentences 2 --vocabulary 300 --beams 1 {EVALUATION}",
    "cnn": f"bench cnn --systems dense,dts-0.5 --batch 8 --captured 8 --examples 64 {EVALUATION}",
    "sweep": "sweep ../data/step.safetensors --base tensordash --set cores=64,128,256 --set rows=2,4 --set columns=2,4"
    " --jobs 1 --name run --csv points.csv",
    "ablation": "bench ablation --what memory --sparsity 0.9 --seeds 1 --examples 16 --out runs",
}
PONG = (
    "bench pong --variants dense,rigl-75/block=16 --seeds 1 --frames 320 --games 4 --update-every 4 --batch 4"
    " --capacity 64 --warm-up 40 --target-every 3 --points 4 --captured 2 --systems tensorcore --no-evaluation"
    " --threads 1 --device cpu --out runs/pong"
)


Records = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """Something that can be called again after an interruption; ``compared`` of its records are then the same."""

    work: Callable[[], None]
    compared: Callable[[Records], Records] = lambda records: records


def of_pong(records: Records) -> Records:
    """All files, and the lengths of all runs. Games start anew in a run that is gone on with, so figures differ."""
    length = ("variant", "seed", "frames", "steps", "parameters", "sparsity", "moves")
    runs = records["runs/pong/pong.json"]["data"]["runs"]
    return dict.fromkeys(records) | {"runs": sorted([run[name] for name in length] for run in runs)}


OPTIONAL = ("log.jsonl", "topology.sqlite")
"""Records that a run goes on without, after a warning, where they cannot be written."""


def workloads() -> dict[str, Workload]:
    """All of them by name; Pong where its emulator is installed."""
    found = {"loop": Workload(train_like_a_user)}
    found |= {name: Workload(partial(run_command, command)) for name, command in COMMANDS.items()}
    if find_spec("ale_py") is not None:
        found["pong"] = Workload(partial(run_command, PONG), of_pong)
    return found


def write_torn() -> None:
    """What must not be: a record that is written in two steps, and taken for finished when it is there."""
    record = Path("record.json")
    if not record.exists():
        with record.open("w") as file:
            for part in ("[1, ", "2]"):
                file.write(part)
                file.flush()


BROKEN = {"torn": Workload(write_torn)}
"""Workloads that a campaign must find wrong; played where they are named, and by the suite."""


def run_command(command: str) -> None:
    """``acf`` with these words, in the working directory; ends as the command does."""
    sys.argv = ["acf", *command.split()]
    main()


def train_like_a_user() -> None:
    """The loop, with errors and warnings as the command line has them."""
    warnings.formatwarning = one_line
    try:
        loop.train()
    except AcfError as error:
        print(f"acf: {error}", file=sys.stderr)
        sys.exit(2)


def write_data(folder: Path) -> None:
    """Images in the layout of Fashion-MNIST, and a trace to play."""
    generator = np.random.default_rng(0)
    images = folder / "fashion-mnist"
    images.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 128), ("t10k", 64)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        pixels = generator.integers(0, 255, (count, 28, 28)).astype(np.uint8)
        for name, values in ((f"{part}-images-idx3-ubyte.gz", pixels), (f"{part}-labels-idx1-ubyte.gz", labels)):
            header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
            (images / name).write_bytes(gzip.compress(header + values.tobytes()))
    zeros = generator.random((32, 64)) < 0.5
    acf.Trace.from_matmuls([acf.Matmul("fc", "forward", zeros, np.ones((64, 32)))]).save(folder / "step.safetensors")


def import_everything() -> None:
    """What the commands would import and compile, once for all children; no backward pass, which ends forking."""
    import sklearn.datasets  # noqa: F401
    import torch

    import acf.bench.accuracy.bench
    import acf.bench.evaluation.bench
    import acf.bench.evaluation.plot
    import acf.bench.fabric.ablation_runs
    import acf.bench.pong.bench
    import acf.bench.training.bench
    import acf.cli
    import acf.report
    import acf.sim
    import acf.sweep

    torch.set_num_threads(1)
    load_library()
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", np.eye(16), np.ones((16, 32)))])
    for machine in ("tensorcore-512", "tensorcore", "tensordash", "acf-512"):
        acf.simulate(trace, machine)
