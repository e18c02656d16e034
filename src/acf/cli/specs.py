"""Commands whose options are the fields of Specs: name, type, default and help stand in the Spec alone.

Most Specs live in modules that need torch. A command therefore reads its Specs when its own options are needed, so that
``acf --help`` imports none of them.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cached_property
from importlib import import_module
from math import isfinite
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from acf.errors import AcfError
from acf.extras import EXTRAS, require
from acf.options import KEY, Option, flag_of

Command = TypeVar("Command", bound=Callable[..., None])


class SpecCommand(TyperCommand):
    """A command that takes its options from Specs when it is called, or asked for its own help."""

    @cached_property
    def _complete(self) -> Any:
        """The command with all its options."""
        app = typer.Typer(add_completion=False)
        app.command(self.name)(getattr(self.callback, "expanded")())  # noqa: B009
        return typer.main.get_command(app)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, those of the Specs among them."""
        self.params = self._complete.params
        return super().get_params(ctx)

    def invoke(self, ctx: Any) -> Any:
        """Build the Specs and call the command."""
        return self._complete.invoke(ctx)


def spec_command(app: typer.Typer, name: str | None = None, **specs: str) -> Callable[[Command], Command]:
    """Register a command whose parameters named in ``specs`` are Specs, each given as ``module:class``.

    Every field of a Spec that was made by `acf.options.option` becomes an option at the place of the parameter.
    """

    def register(function: Command) -> Command:
        def placeholder() -> None:
            raise NotImplementedError  # `SpecCommand` calls the expanded function

        placeholder.__doc__ = function.__doc__
        placeholder.expanded = lambda: _expanded(function, specs)  # type: ignore[attr-defined]
        app.command(name or function.__name__, cls=SpecCommand)(placeholder)
        return function

    return register


def _expanded(function: Callable[..., None], specs: dict[str, str]) -> Callable[..., None]:
    """``function`` with the options of its Specs in place of the Specs."""
    types = {parameter: _load(path) for parameter, path in specs.items()}

    def run(**values: Any) -> None:
        for parameter, spec in types.items():
            given = {each.name: _parsed(each, hint, values.pop(each.name)) for each, hint in _option_fields(spec)}
            values[parameter] = spec(**given)
        function(**values)

    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(function).parameters.values():
        if each.name in types:
            parameters += [_parameter(own, hint) for own, hint in _option_fields(types[each.name])]
        else:
            parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    run.__doc__ = function.__doc__
    return run


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            require(package, needed_by="this command")
        raise


def _option_fields(spec: Any) -> list[tuple[Field[Any], Any]]:
    """The fields that are options, with their types."""
    hints = get_type_hints(spec)
    return [(each, hints[each.name]) for each in fields(spec) if KEY in each.metadata]


def _parameter(own: Field[Any], hint: Any) -> inspect.Parameter:
    """The field as a parameter that typer understands; tuples are written with commas."""
    about: Option = own.metadata[KEY]
    default: Any = own.default
    if get_origin(hint) is tuple:
        hint, default = str, ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in default)
    details: dict[str, Any] = {"help": about.help, "envvar": about.environment, "min": about.min, "max": about.max}
    kind = typer.Argument(**details) if about.argument else typer.Option(*about.flags, **details)
    return inspect.Parameter(
        own.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[hint, kind],
    )


def _parsed(own: Field[Any], hint: Any, value: Any) -> Any:
    """The value of the field; a tuple is split at its commas. Numbers are finite: no option means NaN or infinity."""
    if get_origin(hint) is not tuple:
        return _finite(own, value)
    number = get_args(hint)[0]
    parts = [part.strip() for part in value.split(",") if part.strip()]
    try:
        return tuple(_finite(own, number(part)) for part in parts)
    except ValueError:
        raise AcfError(f"{flag_of(own)} {value!r} are not numbers with commas between; write 0.5,0.9") from None


def _finite(own: Field[Any], value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        raise AcfError(f"{flag_of(own)} {value} is no finite number; pass one")
    return value
