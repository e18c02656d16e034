"""Tables, colours and progress: what a terminal shows, and what a pipe never sees."""

import os
import pty
import select
import subprocess
import sys
import time

import pytest

SHOW = """
from acf.columns import Column
from acf.columns import terminal_table
from acf.terminal import progress, show, working
columns = [Column("name", "name", lambda row: row, style=lambda row: "red")]
with working("build", visible=True):
    pass
with progress(visible=VISIBLE) as on_progress:
    on_progress("half", 0.5)
show(terminal_table(columns, ["a"], "title"))
"""
ESCAPE = "\x1b["


def shown_in_a_terminal(script: str, **environment: str) -> str:
    """What a script writes when stdout and stderr are one terminal."""
    ours, theirs = pty.openpty()
    colours = ("NO_COLOR", "FORCE_COLOR", "TERM")
    kept = {name: value for name, value in os.environ.items() if name not in colours}
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=theirs, stderr=theirs, env=kept | {"TERM": "xterm"} | environment
    )
    os.close(theirs)
    text, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                text += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert child.wait(10) == 0, text.decode()
    return text.decode()


def test_a_terminal_shows_progress_with_the_remaining_time_and_colours() -> None:
    text = shown_in_a_terminal(SHOW.replace("VISIBLE", "True"))
    assert "100 %" in text
    assert "left" in text
    assert "half" in text
    assert f"{ESCAPE}31m" in text  # red


@pytest.mark.parametrize("value", ["1", "0"])
def test_no_color_turns_colours_off_whatever_its_value(value: str) -> None:
    text = shown_in_a_terminal(SHOW.replace("VISIBLE", "True"), NO_COLOR=value)
    assert "half" in text
    assert f"{ESCAPE}31m" not in text


def test_a_pipe_gets_the_table_alone() -> None:
    script = SHOW.replace("VISIBLE", "True")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert ESCAPE not in done.stdout
    assert "title" in done.stdout


def test_progress_that_is_not_wanted_is_not_shown_even_in_a_terminal() -> None:
    text = shown_in_a_terminal(SHOW.replace("VISIBLE", "False"))
    assert "title" in text
    assert "100 %" not in text
