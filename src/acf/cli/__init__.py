"""The command `acf`: thin commands over the library, one module for each group.

Torch and the simulator are imported when a command needs them, so that ``acf --help`` answers at once.
"""

import sys
import warnings
from io import TextIOWrapper
from typing import Annotated

import typer

from acf import __version__
from acf.cli import architectures, bench, capture, demo, doctor, report, reproduce, simulate, sweep, watch
from acf.cli.groups import AcfGroup
from acf.cli.rtl import app as rtl
from acf.cli.standard_output import checked_output
from acf.errors import AcfError
from acf.printable import printable_line

app = typer.Typer(
    name="acf",
    help="Train neural networks with dynamic block sparsity, and play the same run on modelled hardware.",
    no_args_is_help=True,
    cls=AcfGroup,
    pretty_exceptions_enable=False,
)
for group in (demo, simulate, architectures, sweep, capture, report, reproduce, doctor, watch):
    app.add_typer(group.app)  # without a name: the commands stand at the top
app.add_typer(bench.app, name="bench")
app.add_typer(rtl, name="rtl")


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2, and so is every warning a line."""
    warnings.formatwarning = one_line
    try:
        with checked_output():
            app()
    except AcfError as error:
        print(f"acf: {printable_line(str(error))}", file=sys.stderr)
        sys.exit(2)


def one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as people who call a command want it: what it says, and not which line of Python said it.

    >>> one_line(UserWarning("the disk is full"), UserWarning, "store.py", 1)
    'acf: warning: the disk is full\\n'
    """
    return f"acf: warning: {printable_line(' '.join(str(message).split()))}\n"


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text of any encoding
    if version:
        typer.echo(__version__)
        raise typer.Exit
