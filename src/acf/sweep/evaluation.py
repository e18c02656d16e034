"""What a point of a sweep is: traces played on a variant of a machine, or a function of the user's own."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from pydantic import TypeAdapter, ValidationError

from acf.errors import AcfError, SweepError, TraceError
from acf.lowering.fabric_shape import PROGRAM_FIELDS
from acf.lowering.products import KeptProducts
from acf.plugins import import_object
from acf.sim import Result, find_architecture, simulate_parts, spec
from acf.sweep.sweep import Axes, Changes, Value
from acf.trace import Trace

Figures = dict[str, float | None]
"""What a point gave, by name; None where the machine has no such figure."""


@dataclass(frozen=True)
class Objective:
    """A figure that a sweep makes small, or large (``maximise``)."""

    name: str
    maximise: bool = False


TIME_ENERGY_AREA = (Objective("step_seconds"), Objective("energy_j"), Objective("area_mm2"))


class Evaluation(Protocol):
    """Turns a point into figures; an object that other processes can unpickle."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The figures that decide which points are on the Pareto front."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """What figures depend on besides the point, as JSON values; a sweep resumes only if it is unchanged."""
        ...

    @property
    def slowest(self) -> tuple[str, ...]:
        """Parameters that work is shared by between points that agree in them."""
        ...

    def check(self, axes: Axes) -> None:
        """Refuse parameters that do not exist, and values of the wrong type, before anything runs."""
        ...

    def __call__(self, changes: Changes) -> Figures:
        """The figures of a point; raises where there are none."""
        ...


@dataclass(frozen=True)
class PlayedTraces:
    """Points that play ``traces`` on variants of the machine ``base``; time and energy are sums over the traces."""

    traces: tuple[Path, ...]
    base: str = "acf-512"

    def __post_init__(self) -> None:
        if not self.traces:
            raise SweepError("the sweep plays no trace; pass one that `acf capture`, `acf demo` or Trace.save wrote")
        find_architecture(self.base)
        for path in self.traces:
            if not Trace.load(path).ops:
                raise TraceError(f"{path} holds no matrix product; capture a step that computes something")

    objectives = TIME_ENERGY_AREA
    slowest = PROGRAM_FIELDS

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Every field of the base, and a digest of every trace."""
        found = find_architecture(self.base)[1]
        return {
            "base": {key: value for key, value in asdict(found).items() if key != "name"},
            "traces": [hashlib.sha256(path.read_bytes()).hexdigest() for path in self.traces],
        }

    def check(self, axes: Axes) -> None:
        """Refuse what is no field of the base, and values that are not of its type."""
        kind = type(find_architecture(self.base)[1])
        hints = get_type_hints(kind)
        known = [item.name for item in fields(kind) if item.name != "name"]
        for name, values in axes.values.items():
            if name not in known:
                spec(self.base, **{name: values[0]})  # refuses an unknown field with the nearest name
                raise SweepError(f"{name} cannot be swept; use one of {', '.join(known)}")
            for value in values:
                _check_type(self.base, name, hints[name], value)

    def __call__(self, changes: Changes) -> Figures:
        """Time, energy and area of the variant, and how well it is used."""
        variant = spec(self.base, **changes)
        results = [simulate_parts([trace], variant, products) for trace, products in map(_loaded, self.traces)]
        return _figures(results)


@dataclass(frozen=True)
class OwnFunction:
    """Points that a function ``module:name`` evaluates: it takes the parameters by name and returns figures by name.

    A training run may be such a point, with its accuracy among the figures.
    """

    function: str
    minimise: tuple[str, ...] = ()
    maximise: tuple[str, ...] = ()
    slowest: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.objectives:
            raise SweepError(f"{self.function} has no objective; name figures in minimise or maximise")
        if not callable(import_object(self.function)):
            raise SweepError(f"{self.function!r} is no function; name one that returns figures by name")

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The figures to make small, and those to make large."""
        return (*map(Objective, self.minimise), *(Objective(name, maximise=True) for name in self.maximise))

    @property
    def identity(self) -> dict[str, Any]:
        """The function and a digest of its module's source."""
        source = inspect.getsourcefile(import_object(self.function))
        content = Path(source).read_bytes() if source else b""
        return {"function": self.function, "source": hashlib.sha256(content).hexdigest()}

    def check(self, axes: Axes) -> None:
        """Refuse names that are no parameters of the function."""
        signature = inspect.signature(import_object(self.function))
        try:
            signature.bind(**{name: values[0] for name, values in axes.values.items()})
        except TypeError as error:
            raise SweepError(f"{self.function}{signature}: {error}; set exactly its parameters") from error

    def __call__(self, changes: Changes) -> Figures:
        """What the function returns, if it has every objective."""
        figures = import_object(self.function)(**changes)
        wanted = [objective.name for objective in self.objectives]
        missing = [name for name in wanted if not isinstance(figures, Mapping) or name not in figures]
        if missing:
            raise SweepError(f"{self.function} returned no {', '.join(missing)}; return a dict of figures by name")
        return {str(name): None if value is None else float(value) for name, value in figures.items()}


@dataclass(frozen=True)
class Attempt:
    """A point and its figures, or the reason why it has none (``failure``)."""

    changes: Changes
    figures: Figures | None = None
    failure: str = ""


def attempt(evaluation: Evaluation, changes: Changes) -> Attempt:
    """Evaluate a point; whatever goes wrong is the point's own failure."""
    try:
        figures = evaluation(changes)
        broken = [objective.name for objective in evaluation.objectives if not _is_usable(figures, objective)]
        if broken:
            return Attempt(changes, failure=f"{', '.join(broken)} is not finite")
        return Attempt(changes, figures)
    except AcfError as error:
        return Attempt(changes, failure=str(error))
    except Exception as error:  # a bug that one point meets must not end the others
        return Attempt(changes, failure=f"{type(error).__name__}: {error}")


def attempt_all(evaluation: Evaluation, points: list[Changes]) -> list[Attempt]:
    """`attempt` for several points in order, in one call of another process."""
    return [attempt(evaluation, changes) for changes in points]


def _is_usable(figures: Figures, objective: Objective) -> bool:
    value = figures[objective.name]
    return value is None or isfinite(value)


@lru_cache(maxsize=8)
def _loaded(path: Path) -> tuple[Trace, KeptProducts]:
    """A trace with its matrix products, which all points of this process share."""
    return Trace.load(path), KeptProducts()


def _figures(results: list[Result]) -> Figures:
    seconds = sum(result.step_seconds for result in results)
    slots = sum(result.step_cycles * result.macs_per_cycle for result in results)
    effectual = sum(op.effectual_macs for result in results for op in result.ops)
    return {
        "step_seconds": seconds,
        "energy_j": sum(result.energy_j for result in results) or None,
        "area_mm2": results[0].total_area_mm2,
        "step_utilization": effectual / slots if slots else 0.0,
        "dram_bytes": float(sum(result.dram_bytes for result in results)),
        "macs_per_cycle": float(results[0].macs_per_cycle),
    }


def _check_type(base: str, name: str, hint: Any, value: Value) -> None:
    try:
        TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise SweepError(f"{base}: {name} = {value!r}: {problem}; give values of the field's type") from error
