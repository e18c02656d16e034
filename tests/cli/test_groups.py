"""Names of options and examples, the same for every command."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from acf.cli import app
from acf.cli.groups import EARLIER_NAMES, EXAMPLES

RUNNER = CliRunner()


def leaves(group: Any, words: tuple[str, ...] = ("acf",)) -> dict[str, Any]:
    """Every command by the words that name it."""
    below = getattr(group, "commands", None)
    if below is None:
        return {" ".join(words): group}
    return {key: each for name in below for key, each in leaves(below[name], (*words, name)).items()}


COMMANDS = leaves(typer.main.get_command(app))


def options(command: Any) -> set[str]:
    return {flag for option in command.get_params(typer.Context(command)) for flag in option.opts}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_help_ends_with_an_example_of_the_command(words: str) -> None:
    text = RUNNER.invoke(app, [*words.split()[1:], "--help"], env={"COLUMNS": "200"}).output
    assert text.count(words) >= 2  # the usage, and the example


@pytest.mark.parametrize("words", EXAMPLES)
def test_examples_use_options_that_exist(words: str) -> None:
    known = options(COMMANDS[words])
    used = {word for line in EXAMPLES[words] for word in line.split() if word.startswith("--")}
    assert used - {"--help"} <= known
    assert all(line.startswith(words) for line in EXAMPLES[words])


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_shows_an_earlier_name_of_an_option(words: str) -> None:
    assert not options(COMMANDS[words]) & set(EARLIER_NAMES)


@pytest.mark.parametrize("old", ["--save", "--output", "-o", "--save="])
def test_earlier_names_of_options_still_work(old: str, tmp_path: Path) -> None:
    import acf

    trace, target = tmp_path / "step.safetensors", tmp_path / "result.json"
    acf.Trace.from_matmuls([acf.Matmul("fc", "forward", [[1.0] * 8] * 8, [[1.0] * 8] * 8)], label="x").save(trace)
    given = [f"{old}{target}"] if old.endswith("=") else [old, str(target)]
    done = RUNNER.invoke(app, ["simulate", str(trace), "--on", "tensordash", *given])
    assert done.exit_code == 0, done.output
    assert target.is_file()


def test_the_shell_can_complete_commands() -> None:
    assert "--install-completion" in RUNNER.invoke(app, ["--help"]).output
