"""A network small enough to simulate in a test."""

from dataclasses import replace

import pytest

from acf.bench.fabric.workloads import WORKLOADS, StepLayer, StepSpec
from acf.zoo.synthetic import Zeros, square_convolution


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> StepSpec:
    """Two convolutions under the name of a network."""
    stem = replace(square_convolution(3, 64, 8), name="stem", reads_data=True)
    layers = [
        StepLayer(stem, Zeros(0.0, 0.5), sparse=False),
        StepLayer(square_convolution(64, 64, 8, stride=2), Zeros(0.5, 0.5)),
    ]
    monkeypatch.setitem(WORKLOADS, "tiny", lambda: layers)
    return StepSpec("tiny", 4, 0.75)
