"""The record of one ablation: the figures of a machine while one of its parts varies, over several seeds."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from acf.errors import ReportError
from acf.schema import read_as
from acf.units import binary_bytes, si


@dataclass(frozen=True)
class Kind:
    """How values of a measure are written, and their unit on an axis.

    An axis has the SI prefix that suits its values, or shows value / ``axis_factor`` where that is given.
    """

    write: Callable[[float], str]
    unit: str = ""
    axis_factor: float | None = None


SHARE = Kind(lambda value: f"{100 * value:.{1 if value >= 0.01 or not value else 2}f} %", "%", 0.01)
RATIO = Kind(lambda value: f"{value:.3f}", axis_factor=1.0)
NUMBER = Kind(lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}", axis_factor=1.0)
COUNT = Kind(lambda value: f"{value:,.0f}")
BYTES = Kind(lambda value: binary_bytes(round(value)), "B")
SECONDS = Kind(lambda value: si(value, "s"), "s")
JOULES = Kind(lambda value: si(value, "J"), "J")


@dataclass(frozen=True)
class Measure:
    """A measured quantity: its heading in tables and plots, the kind of its values, and whether less is better."""

    heading: str
    kind: Kind
    less_is_better: bool = True


MEASURES: dict[str, Measure] = {
    "cycles": Measure("cycles of products", COUNT),
    "step_cycles": Measure("cycles of the step", COUNT),
    "seconds": Measure("time of the step", SECONDS),
    "utilization": Measure("utilisation", SHARE, less_is_better=False),
    "dram_bytes": Measure("DRAM", BYTES),
    "energy_j": Measure("energy", JOULES),
    "speedup": Measure("speedup", RATIO, less_is_better=False),
    "scaling": Measure("scaling efficiency", SHARE, less_is_better=False),
    "macs": Measure("MACs per cycle", COUNT, less_is_better=False),
    "area_mm2": Measure("area in mm²", NUMBER),
    "flits": Measure("flits sent", COUNT),
    "controller_cycles": Measure("controller cycles per update", COUNT),
    "controller_share": Measure("controller's share of the step", SHARE),
    "stale_cycles": Measure("cycles, mapping kept", COUNT),
    "gain": Measure("speedup by rebalancing", RATIO, less_is_better=False),
    "pays_after_steps": Measure("pays after steps", NUMBER),
    "lost_imbalance": Measure("lost: imbalance", SHARE),
    "lost_memory": Measure("lost: memory", SHARE),
    "lost_mesh": Measure("lost: mesh", SHARE),
    "lost_drain": Measure("lost: drain", SHARE),
    "lost_fill": Measure("lost: fill", SHARE),
    "lost_inside": Measure("lost: inside tiles", SHARE),
}
"""The measures by name; one entry puts a measure into tables, plots and records.

Lost ones are shares of MAC slots. Inside tiles: zeros within blocks, partial tiles at the edges, and scanning for
non-zeros.
"""


@dataclass(frozen=True)
class AblationPoint:
    """One measured point: the line (``series``) and position (``value``) of a plot, its sparsity and its random seed.

    ``figures`` are by name of `MEASURES`, and empty where ``failure`` says why there are none. ``setting`` is a digest
    of machine and step: a point is measured again when either has changed.
    """

    series: str
    value: str
    sparsity: float
    seed: int
    setting: str
    figures: dict[str, float] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over ``seeds`` seeds; the deviation of one is 0."""

    mean: float
    deviation: float
    seeds: int

    def __float__(self) -> float:
        return self.mean


@dataclass(frozen=True)
class AblationRow:
    """One position of one line at one sparsity: figures over the seeds that worked, ``failures`` of the others."""

    series: str
    value: str
    sparsity: float
    spreads: dict[str, Spread]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class AblationRecord:
    """All points of one ablation: ``measures`` are the columns of its table, ``plotted`` those that get a plot.

    ``note`` says how to read it; ``conditions`` are machine, step and date, printed beside every figure.
    """

    ablation: str
    title: str
    axis: str
    note: str
    conditions: str
    measures: tuple[str, ...]
    plotted: tuple[str, ...]
    points: tuple[AblationPoint, ...]

    @property
    def rows(self) -> list[AblationRow]:
        """Means and deviations, in order of first appearance."""
        groups: dict[tuple[float, str, str], list[AblationPoint]] = {}
        for point in self.points:
            groups.setdefault((point.sparsity, point.series, point.value), []).append(point)
        return [
            AblationRow(
                series,
                value,
                sparsity,
                {name: spread for name in self.shown if (spread := _spread(name, members)) is not None},
                tuple(dict.fromkeys(point.failure for point in members if point.failure)),
            )
            for (sparsity, series, value), members in groups.items()
        ]

    @property
    def shown(self) -> tuple[str, ...]:
        """Measures of the table and of the plots, each once."""
        return tuple(dict.fromkeys((*self.measures, *self.plotted)))

    @property
    def failed(self) -> int:
        """Points that could not be measured."""
        return sum(bool(point.failure) for point in self.points)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which `from_dict` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AblationRecord":
        """The record that `to_dict` gave."""
        try:
            record = read_as(cls, values)
        except ValueError as error:
            raise ReportError(
                f"this is no record of an ablation ({error}); pass a file that `acf bench ablation` wrote"
            ) from error
        unknown = [name for name in record.shown if name not in MEASURES]
        if unknown:
            raise ReportError(f"measure {unknown[0]!r} is not one of {', '.join(MEASURES)}; measure the ablation anew")
        return record


def written(name: str, value: float) -> str:
    """A value of the measure ``name`` as it stands in a table.

    >>> written("utilization", 0.9042), written("controller_share", 0.0004), written("cycles", 1519986)
    ('90.4 %', '0.04 %', '1,519,986')
    """
    return MEASURES[name].kind.write(value)


def written_spread(name: str, spread: Spread | None) -> str:
    """Mean and deviation: of shares in points, of other measures in percent of the mean; none that rounds to 0.

    >>> written_spread("cycles", Spread(1000.0, 20.0, 3)), written_spread("utilization", Spread(0.9, 0.01, 3))
    ('1,000 ± 2.0 %', '90.0 % ± 1.0')
    """
    if spread is None:
        return "\N{EN DASH}"
    text = written(name, spread.mean)
    is_share = MEASURES[name].kind is SHARE
    deviation = spread.deviation if is_share or not spread.mean else spread.deviation / abs(spread.mean)
    if deviation < 0.0005:
        return text
    return f"{text} ± {100 * deviation:.1f}" + ("" if is_share else " %")


def _spread(name: str, points: Iterable[AblationPoint]) -> Spread | None:
    values = [point.figures[name] for point in points if name in point.figures]
    if not values:
        return None
    return Spread(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))
