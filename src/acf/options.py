"""Fields of a Spec that the command line offers as options. The Spec holds name, type, default and help text once."""

from dataclasses import Field, dataclass, field
from typing import Any

KEY = "option"
"""Under this key a field's metadata holds its `Option`."""


@dataclass(frozen=True)
class Option:
    """How the command line offers a field.

    ``min`` and ``max`` bound a number. ``flags`` replace the name that the field would give (``--image-size``);
    ``environment`` is a variable that may hold the value. An ``argument`` is given by position and not by name.
    """

    help: str
    min: float | None = None
    max: float | None = None
    flags: tuple[str, ...] = ()
    environment: str | None = None
    argument: bool = False


def option(default: Any, help: str, **details: Any) -> Any:
    """A field of a Spec with its default and what `Option` says about it.

    >>> @dataclass(frozen=True)
    ... class Training:
    ...     steps: int = option(20, "Training steps.", min=1)
    >>> Training().steps
    20
    """
    return field(default=default, metadata={KEY: Option(help, **details)})


def flag_of(option_field: "Field[Any]") -> str:
    """The flag under which the command line offers a field, such as ``--image-size``."""
    details: Option = option_field.metadata[KEY]
    return details.flags[0] if details.flags else f"--{option_field.name.replace('_', '-')}"


def required(help: str) -> dict[str, Any]:
    """Metadata of a field without a default: an argument that must be given, as ``field(metadata=required(...))``."""
    return {KEY: Option(help, argument=True)}
