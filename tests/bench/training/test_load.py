"""Tasks by name."""

from pathlib import Path

import pytest
import torch

from acf.bench.training.load import load_task
from acf.bench.training.task import TASKS
from acf.errors import DataError


def test_without_data_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pass --data"):
        load_task(TASKS["gpt"], None, tmp_path, torch.device("cpu"))
