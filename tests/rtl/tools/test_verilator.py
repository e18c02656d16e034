"""Compiled models are kept."""

import numpy as np
import pytest

from acf.rtl.tools import verilator as build
from acf.rtl.tools.simulation import Simulation
from tests.rtl.tools.counters import Counter


def test_a_compiled_model_is_taken_from_the_cache(verilator: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Simulation(Counter(), backend="verilator")
    monkeypatch.setattr(build, "_build", lambda *arguments: pytest.fail("built again"))
    assert np.all(Simulation(Counter(), backend="verilator").run({"by": 2}, cycles=2)["count"] == [0, 2])
