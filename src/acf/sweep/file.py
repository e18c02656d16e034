"""A sweep as a TOML file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from acf.errors import SweepError
from acf.files import check_name
from acf.sweep.evaluation import Evaluation, OwnFunction, PlayedTraces
from acf.sweep.sweep import Axes, Value
from acf.toml import parse_toml


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class SweepFile:
    """What a file may say: ``set`` has the values of every parameter, the rest is as on the command line.

    Traces are relative to the file. With ``evaluate``, a function ``module:name`` takes the parameters in place of the
    traces and the base, and ``minimise`` and ``maximise`` name the figures it returns that decide the Pareto front.
    """

    set: dict[str, tuple[bool | int | float | str, ...]]
    name: str = ""
    traces: tuple[Path, ...] = ()
    base: str = "acf-512"
    optuna: int = 0
    seed: int = 0
    evaluate: str = ""
    minimise: tuple[str, ...] = ()
    maximise: tuple[str, ...] = ()

    @property
    def axes(self) -> Axes:
        """The values of every parameter."""
        values: dict[str, tuple[Value, ...]] = dict(self.set)
        return Axes(values)

    @property
    def evaluation(self) -> Evaluation:
        """What a point is; paths are absolute, since a worker may run in another folder."""
        if self.evaluate:
            return OwnFunction(self.evaluate, self.minimise, self.maximise, tuple(self.set))
        base = str(Path(self.base).absolute()) if self.base.endswith(".toml") else self.base
        return PlayedTraces(tuple(path.absolute() for path in self.traces), base)

    @property
    def label(self) -> str:
        """The sweep's name, or one made of its traces and its base."""
        if self.name:
            check_name(self.name, "name")
        made = self.evaluate.replace(":", "-") or "-".join((*(path.stem for path in self.traces), Path(self.base).stem))
        return self.name or made.replace("/", "-").replace(":", "-")


def read_sweep_file(path: Path) -> SweepFile:
    """Read ``path``; unknown keys and wrong types are refused by name."""
    try:
        values: dict[str, Any] = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SweepError(f"{path} cannot be read ({error.strerror}); pass an existing .toml file") from error
    except ValueError as error:
        raise SweepError(f"{path} is not TOML: {error}; mend that line") from error
    try:
        file = TypeAdapter(SweepFile).validate_python(values)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        known = ", ".join(SweepFile.__dataclass_fields__)
        raise SweepError(f"{path}: {where}: {problem['msg']}; known keys: {known}") from error
    values["traces"] = tuple(path.parent / trace for trace in file.traces)
    values["name"] = file.name or path.stem
    return TypeAdapter(SweepFile).validate_python(values)
