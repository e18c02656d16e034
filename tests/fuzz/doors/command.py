"""Running a command of `acf` in this process."""

import sys
from unittest.mock import patch


def run_command(*words: str) -> str:
    """What the command prints; an error that is no exit of its own is raised, as on the command line."""
    from typer.testing import CliRunner

    from acf.cli import app

    with patch.object(sys, "argv", ["acf", *words]):
        done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output
