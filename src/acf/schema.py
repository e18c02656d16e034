"""Reading plain values, as JSON gives them, as dataclasses: the fields and their types are the schema of a record."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from math import isfinite, nan
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_NULL_IS_NAN = object()

Diverged = Annotated[float, _NULL_IS_NAN]
"""A number that is not finite where a run has diverged: JSON has null in its place."""

LARGEST = 2**63 - 1
"""The largest integer of a record: none that a command writes needs more bits."""


def read_as(kind: type[T], values: Any, where: str = "") -> T:
    """``values`` as the dataclass ``kind``; a `ValueError` names the first value that does not fit, and its place.

    Unknown and missing fields are refused; numbers are finite. Fields may be plain types, tuples, lists, dictionaries,
    dataclasses, and unions of these.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     step: int
    ...     losses: tuple[float, ...] = ()
    >>> read_as(Point, {"step": 3, "losses": [0.5, 1]})
    Point(step=3, losses=(0.5, 1.0))
    >>> read_as(Point, {"step": "3"}, "points.0")
    Traceback (most recent call last):
    ValueError: points.0.step is '3' and no integer
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where or kind.__name__} is {_short(values)} and no object with fields")
    known = _schema(cast(Hashable, kind))
    for name in values:
        if name not in known:
            raise ValueError(f"{_place(where, name)} is no field of a {kind.__name__}")
    given = {}
    for name, (own, hint) in known.items():
        if name in values:
            given[name] = read_value(hint, values[name], _place(where, name))
        elif own.default is MISSING and own.default_factory is MISSING:
            raise ValueError(f"{_place(where, name)} is missing")
    return kind(**given)


def read_value(hint: Any, value: Any, where: str) -> Any:
    """``value`` as the type ``hint``, such as ``tuple[float, ...]`` or ``int | None``."""
    if hint == Diverged:
        return nan if value is None else _number(value, where)
    if hint in _PLAIN:
        return _PLAIN[hint](value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return read_as(hint, value, where)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union(arguments, value, where)
    if origin is dict:
        return _mapping(arguments[1], value, where)
    if origin in (tuple, list):
        return origin(_items(arguments, origin, value, where))
    raise TypeError(f"{where}: {hint!r} is no type of a record")


@cache
def _schema(kind: Any) -> Mapping[str, tuple[Field[Any], Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: (each, hints[each.name]) for each in fields(kind) if each.init}


def _union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    """The first of the types that fits; the error is that of the first one that is not None."""
    if value is None and NoneType in options:
        return None
    first: ValueError | None = None
    for option in options:
        if option is not NoneType:
            try:
                return read_value(option, value, where)
            except ValueError as error:
                first = first or error
    assert first is not None
    raise first


def _mapping(hint: Any, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {_short(value)} and no object with fields")
    return {str(name): read_value(hint, each, _place(where, str(name))) for name, each in value.items()}


def _items(arguments: tuple[Any, ...], origin: Any, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} is {_short(value)} and no list")
    if origin is list or arguments[1:] == (Ellipsis,):
        kinds = [arguments[0]] * len(value)
    elif len(value) != len(arguments):
        raise ValueError(f"{where} has {len(value)} entries and not {len(arguments)}")
    else:
        kinds = list(arguments)
    pairs = zip(kinds, value, strict=True)
    return [read_value(kind, each, _place(where, str(place))) for place, (kind, each) in enumerate(pairs)]


def _integer(value: Any, where: str) -> int:
    if type(value) is not int or abs(value) > LARGEST:
        raise ValueError(f"{where} is {_short(value)} and no integer")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or (type(value) is int and abs(value) > LARGEST) or not isfinite(value):
        raise ValueError(f"{where} is {_short(value)} and no finite number")
    return float(value)


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{where} is {_short(value)} and no text")
    return value


def _truth(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{where} is {_short(value)} and neither true nor false")
    return value


_PLAIN: dict[Any, Callable[[Any, str], Any]] = {
    int: _integer,
    float: _number,
    str: _text,
    bool: _truth,
    Any: lambda value, where: value,
}
"""Types that hold one value."""


def _place(where: str, name: str) -> str:
    return f"{where}.{name[:40]}" if where else name[:40]


def _short(value: Any) -> str:
    if type(value) is int and abs(value) > LARGEST:
        return "an integer of more than 64 bits"
    return " ".join(repr(value)[:60].split())
