"""Tiny tasks of both kinds, and runs made by hand."""

import gzip
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acf.bench.training.load import load_task
from acf.bench.training.run import CurvePoint, TrainingRun
from acf.bench.training.task import TASKS, Task
from acf.zoo.data.text import token_file

CPU = torch.device("cpu")
MakeRun = Callable[..., TrainingRun]


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Random grey images in the layout of Fashion-MNIST; class c has bright rows c and c + 1, so it can be learnt."""
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for part, count in (("train", 320), ("t10k", 64)):
        labels = generator.integers(0, 10, count).astype(np.uint8)
        images = generator.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 2] += 180
        for name, values in ((f"{part}-images-idx3-ubyte.gz", images), (f"{part}-labels-idx1-ubyte.gz", labels)):
            header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
            (folder / name).write_bytes(gzip.compress(header + values.tobytes()))
    return tmp_path


@pytest.fixture
def image_task(image_folder: Path) -> Task:
    """The task "small", 16 channels wide, in batches of 32."""
    return load_task(replace(TASKS["small"], width=16, batch=32), image_folder, image_folder, CPU)


@pytest.fixture
def text_task(tmp_path: Path) -> Task:
    """A GPT of one layer on windows of 16 tokens that count up, from tokens laid where the cache would hold them."""
    spec = replace(TASKS["gpt-small"], layers=1, batch=2, context=16, vocabulary=64)
    tokens = (np.arange(1000) % 64).astype(np.uint16)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("tokens that count up")
    kept = token_file(corpus, 64, tmp_path)
    np.savez(kept, train=tokens, validation=tokens[:100], bytes_per_token=np.float64(1.0))
    return load_task(spec, corpus, tmp_path, CPU)


@pytest.fixture
def make_run() -> MakeRun:
    """A function that gives a run with measurements in equal distances."""

    def made(variant: str, seed: int, seconds: float, qualities: tuple[float, ...], **others: object) -> TrainingRun:
        joules = others.get("joules")
        curve = tuple(
            CurvePoint(i + 1, seconds * (i + 1) / len(qualities), q, joules and joules * (i + 1) / len(qualities))
            for i, q in enumerate(qualities)
        )
        values = {
            "steps": len(qualities),
            "seconds": seconds,
            "warm_up_seconds": 1.0,
            "step_ms": 1e3 * seconds / len(qualities),
            "peak_gib": 1.0,
            "quality": qualities[-1],
            "sparsity": 0.0,
            "parameters": 1,
            "moves": 0,
            "joules": None,
            "idle_watts": None,
            "energy_source": "",
            "curve": curve,
        }
        return TrainingRun(variant=variant, seed=seed, **{**values, **others})

    return made
