"""Options of a command are the fields of its Specs: their names, types, defaults and help."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from acf.cli import app as acf_app
from acf.cli.specs import spec_command
from acf.errors import AcfError
from acf.options import option, required

RUNNER = CliRunner()


@dataclass(frozen=True)
class Run:
    """A Spec; ``secret`` is no option."""

    model: str = field(metadata=required("Which network."))
    steps: int = option(20, "Training steps.", min=1)
    shares: tuple[float, ...] = option((0.0, 0.75), "Shares to drop.", flags=("--sparsity",))
    folder: Path | None = option(None, "Where data lies.", environment="RUN_FOLDER")  # noqa: RUF009
    whole: bool = option(False, "All of it.", flags=("--whole",))
    secret: int = 7


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()

    @spec_command(made, run=f"{__name__}:Run")
    def train(run: Run, loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False) -> None:
        """Train a network."""
        typer.echo(repr(run).upper() if loud else repr(run))

    return made


def test_what_is_not_given_has_the_default_of_the_spec(app: typer.Typer) -> None:
    assert RUNNER.invoke(app, ["vgg"]).output.strip() == repr(Run("vgg"))


def test_what_is_given_reaches_the_spec_with_its_type(app: typer.Typer) -> None:
    given = ["vgg", "--steps", "3", "--sparsity", "0.5,0.9", "--folder", "here", "--whole"]
    assert RUNNER.invoke(app, given).output.strip() == repr(Run("vgg", 3, (0.5, 0.9), Path("here"), True))
    assert RUNNER.invoke(app, ["vgg", "--loud"]).output.strip() == repr(Run("vgg")).upper()


def test_an_environment_variable_may_hold_the_value(app: typer.Typer) -> None:
    assert "elsewhere" in RUNNER.invoke(app, ["vgg"], env={"RUN_FOLDER": "elsewhere"}).output


def test_help_shows_text_default_and_limits_of_every_field(app: typer.Typer) -> None:
    text = RUNNER.invoke(app, ["--help"], terminal_width=120).output
    for part in (
        "Train a network.",
        "Which network.",
        "Training steps.",
        "20",
        "x>=1",
        "0,0.75",
        "RUN_FOLDER",
        "Shout.",
    ):
        assert part in text
    assert "secret" not in text


def test_a_value_out_of_its_limits_is_refused(app: typer.Typer) -> None:
    assert RUNNER.invoke(app, ["vgg", "--steps", "0"]).exit_code == 2


@pytest.mark.parametrize("text", ["nan", "0.5,inf", "-inf"])
def test_numbers_that_are_not_finite_are_refused_by_the_option_s_name(app: typer.Typer, text: str) -> None:
    done = RUNNER.invoke(app, ["resnet", "--sparsity", text])
    assert isinstance(done.exception, AcfError)
    assert "is no finite number" in str(done.exception)
    assert "--sparsity" in str(done.exception)


def test_words_where_numbers_belong_are_refused_by_the_option_s_name(app: typer.Typer) -> None:
    refused = RUNNER.invoke(app, ["vgg", "--sparsity", "0.5,many"])
    assert isinstance(refused.exception, AcfError)
    assert str(refused.exception).startswith("--sparsity '0.5,many' are not numbers")


def commands(group: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words that name every command."""
    below = getattr(group, "commands", None)
    return [path] if below is None else [words for name in below for words in commands(below[name], (*path, name))]


@pytest.mark.parametrize("words", commands(typer.main.get_command(acf_app)), ids=" ".join)
def test_every_command_has_help_with_its_options(words: tuple[str, ...]) -> None:
    done = RUNNER.invoke(acf_app, [*words, "--help"])
    assert done.exit_code == 0, done.output
    assert "--help" in done.output


@pytest.mark.parametrize("words", ["--help", "bench --help", "--version"])
def test_help_of_groups_comes_without_torch(words: str) -> None:
    script = (
        f"import sys; sys.argv = ['acf', *{words.split()!r}]\nimport acf.cli\n"
        "try: acf.cli.main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'numba', 'plotly'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
