"""A command whose output goes to a full disk ends with one line, and one whose reader has gone ends in silence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "acf", "architectures")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_output_on_a_full_disk_ends_the_command_with_one_line(options: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *options], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "acf: standard output cannot be written (No space left on device); free some space, then call it again\n"
    )


def test_a_reader_that_has_gone_costs_no_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "--json"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_command_without_any_output_works() -> None:
    words = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
