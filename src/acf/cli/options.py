"""What the commands share: options, and ways to read and print."""

import json
from typing import Annotated, Any

import typer

from acf.errors import ArchitectureError

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]


def numbers(text: str, name: str) -> list[float]:
    """The numbers of an option that takes several, separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArchitectureError(f"--{name} {text!r} are not numbers with commas between; write 0.5,0.9") from None


def print_json(values: Any) -> None:
    """Values on standard output, for programs."""
    typer.echo(json.dumps(values, indent=2))
