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


@pytest.mark.parametrize(
    ("action", "expected"),
    [("exec sleep 60", "no answer after 0.5 s"), ("exit 3", "exit code 3"), ("", "Exec format error|No such file")],
)
def test_a_verilator_that_hangs_or_fails_is_named_with_the_reason(
    action: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "ANSWER_SECONDS", 0.5)
    with pytest.raises(build.VerilatorUnavailableError, match=rf"fake does not run \(.*({expected})"):
        build._examined(fake_program(tmp_path, action), tmp_path)


def test_a_verilator_that_speaks_no_utf8_is_taken_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "verilated.h").write_text("")
    assert (
        build._examined(fake_program(tmp_path, r"printf 'caf\351\n'"), tmp_path).version
        == "caf\N{REPLACEMENT CHARACTER}"
    )


def test_a_compiler_that_hangs_is_stopped_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILD_SECONDS", 0.5)
    with pytest.raises(build.VerilatorUnavailableError, match=r"fake has not ended after 0\.5 s; check"):
        build._run([fake_program(tmp_path, "exec sleep 60")], tmp_path)


def test_a_compiler_that_speaks_no_utf8_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(build.VerilatorUnavailableError, match="fake failed: caf\N{REPLACEMENT CHARACTER}; check"):
        build._run([fake_program(tmp_path, r"printf 'caf\351\n' >&2; exit 1")], tmp_path)


def fake_program(folder: Path, action: str) -> str:
    """A script that does ``action``; without one, a file that no system runs."""
    path = folder / "fake"
    path.write_text(f"#!/bin/sh\n{action}\n" if action else "\0")
    path.chmod(0o700)
    return str(path)
