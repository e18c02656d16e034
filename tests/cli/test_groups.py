"""Names of options and examples, the same for every command."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from acf.cli import app, main
from acf.cli.groups import EARLIER_NAMES, EXAMPLES
from acf.errors import FileError

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
def test_every_example_is_a_call_that_the_command_line_takes(words: str) -> None:
    assert EXAMPLES[words][0].startswith(words)
    for line in EXAMPLES[words]:
        name = max((each for each in COMMANDS if line.startswith(f"{each} ") or line == each), key=len)
        arguments = shlex.split(line)[len(name.split()) :]
        assert "--help" not in arguments
        COMMANDS[name].make_context(name, arguments)  # raises where an option is unknown, missing or no number


def test_ctrl_c_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interruption = KeyboardInterrupt()

    def interrupted(*_: object) -> None:
        raise interruption

    monkeypatch.setattr("acf.doctor.examine", interrupted)
    monkeypatch.setattr("sys.argv", ["acf", "doctor"])
    for expected in ("acf: interrupted", "acf: interrupted; what is done stays in runs"):
        with pytest.raises(SystemExit, match="130"):
            main()
        assert capsys.readouterr().err.strip() == expected
        interruption.add_note("what is done stays in runs")


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


@pytest.mark.parametrize("option", ["--out", "-o", "--csv"])
def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    done = RUNNER.invoke(app, ["compare", "no-such-trace", option, str(tmp_path / "file" / "result.json")])
    assert isinstance(done.exception, FileError)
    assert "cannot be written (Not a directory)" in str(done.exception)
