"""A trace that is played in milliseconds."""

from pathlib import Path

import numpy as np
import pytest

import acf


@pytest.fixture(scope="session")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products with weights that are half zero, as a file."""
    random = np.random.default_rng(0)
    matmuls = [
        acf.Matmul(name, "forward", random.random((48, 64)) < 0.7, random.random((64, 48)) < 0.5) for name in ("a", "b")
    ]
    path = tmp_path_factory.mktemp("step") / "step.safetensors"
    acf.Trace.from_matmuls(matmuls, label="step").save(path)
    return path
