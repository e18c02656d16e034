"""The task of `acf bench training` with its data, by the task's name."""

from pathlib import Path

import torch

from acf.bench.training.image_task import IMAGE_NETWORKS, load_image_task
from acf.bench.training.task import Task, TaskSpec
from acf.bench.training.text_task import load_text_task
from acf.errors import DataError


def load_task(spec: TaskSpec, data: Path | None, cache: Path, device: torch.device) -> Task:
    """The task of ``spec`` with its data on ``device``."""
    if data is None:
        raise DataError(f"{spec.name} needs data; pass --data with a folder of data sets, or the corpus of a GPT")
    if spec.name in IMAGE_NETWORKS:
        return load_image_task(spec, data, device)
    return load_text_task(spec, data, cache, device)
