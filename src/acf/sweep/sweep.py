"""What a sweep varies: axes of values, and the points of their grid."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from acf.errors import SweepError
from acf.toml import parse_toml

Value = bool | int | float | str
"""What a field of a Spec, or a parameter of a training run, may be set to."""

Changes = Mapping[str, Value]
"""A point of a sweep: the value of every axis, by name."""


@dataclass(frozen=True)
class Axes:
    """The values of every parameter of a sweep, by name.

    >>> axes = Axes({"mesh_columns": (4, 8), "skip": ("both", "serial")})
    >>> axes.size, next(axes.grid())
    (4, {'mesh_columns': 4, 'skip': 'both'})
    """

    values: Mapping[str, tuple[Value, ...]]

    def __post_init__(self) -> None:
        if not self.values:
            raise SweepError("the sweep varies nothing; name at least one parameter, as in --set mesh_columns=4,8,16")
        for name, values in self.values.items():
            if not values:
                raise SweepError(f"{name} has no value; give at least one, as in {name}=4,8,16")
            if len({repr(value) for value in values}) < len(values):
                raise SweepError(f"{name} has a value twice ({', '.join(map(str, values))}); give each once")

    @property
    def size(self) -> int:
        """Points of the whole grid."""
        return prod(len(values) for values in self.values.values())

    def grid(self, slowest: Iterable[str] = ()) -> Iterator[dict[str, Value]]:
        """Every combination; the parameters ``slowest`` change least often, so that neighbours share their value."""
        first = set(slowest)
        order = sorted(self.values, key=lambda name: name not in first)
        for combination in product(*(self.values[name] for name in order)):
            by_name = dict(zip(order, combination, strict=True))
            yield {name: by_name[name] for name in self.values}


def parse_settings(texts: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """Axes as the command line writes them.

    >>> parse_settings(["link_bytes=16,32", "skip=both,serial", "clock_hz=250e6"])
    {'link_bytes': (16, 32), 'skip': ('both', 'serial'), 'clock_hz': (250000000.0,)}
    """
    axes: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise SweepError(f"--set {text!r} is not FIELD=VALUE,VALUE; write for example mesh_columns=4,8,16")
        if name in axes:
            raise SweepError(f"--set {name} is given twice; put all its values into one: {name}=4,8,16")
        axes[name] = tuple(_value(part.strip()) for part in values.split(",") if part.strip())
    return axes


def _value(text: str) -> Value:
    """A number or a truth value as TOML writes them; any other text is a string."""
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text
