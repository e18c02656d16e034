"""Runs that are killed, or meet a full disk, end as uninterrupted ones when they are called again.

``make faults`` plays more, and all workloads.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.disk import compiler

ROOT = Path(__file__).parents[2]


pytestmark = [
    pytest.mark.skipif(compiler() is None, reason="the faulty disk is written in C, and there is no compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="the faulty disk is for Linux"),
]


def play(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.faults", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_interrupted_runs_end_as_uninterrupted_ones() -> None:
    done = play("--kills", "4", "--full", "4", "--workloads", "loop,accuracy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 kills and 4 full disks over loop, accuracy" in done.stdout
    assert "0 wrong" in done.stdout


def test_a_command_that_leaves_half_a_record_is_found() -> None:
    done = play("--kills", "2", "--full", "2", "--workloads", "torn")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG torn" in done.stdout
