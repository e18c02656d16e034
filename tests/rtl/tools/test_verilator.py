"""Compiled models are kept; where they cannot be, one line says so."""

import errno
from pathlib import Path

import numpy as np
import pytest

from acf.rtl.tools import verilator as build
from acf.rtl.tools.simulation import Simulation
from tests.rtl.tools.counters import Counter


def test_a_compiled_model_is_taken_from_the_cache(verilator: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Simulation(Counter(), backend="verilator")
    monkeypatch.setattr(build, "_build", lambda *arguments: pytest.fail("built again"))
    assert np.all(Simulation(Counter(), backend="verilator").run({"by": 2}, cycles=2)["count"] == [0, 2])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("fatal error: error writing to all.s: No space left on device", "No space left on device; free some space"),
        ("error: unknown flag", "unknown flag; check its installation"),
    ],
)
def test_a_compiler_that_fails_is_named_with_what_to_do(message: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(build.VerilatorUnavailableError, match=expected):
        build._run(["sh", "-c", f"echo '{message}' >&2; exit 1"], tmp_path)


def test_a_full_disk_under_a_compiled_model_is_told_in_one_line() -> None:
    with (
        pytest.raises(
            build.VerilatorUnavailableError, match=r"rtl cannot hold a compiled model .*; free some space, or"
        ),
        build.model_folder(),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
