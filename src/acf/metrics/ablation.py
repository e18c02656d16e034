"""The record of one ablation: what a machine does when one of its parts is varied, over seeds."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from acf.errors import ReportError
from acf.units import binary_bytes, si


@dataclass(frozen=True)
class Measure:
    """A measured quantity: its heading, how a value is written (a kind of `WRITTEN`), and whether less is better."""

    heading: str
    kind: str
    less_is_better: bool = True


MEASURES: dict[str, Measure] = {
    "cycles": Measure("cycles of products", "count"),
    "step_cycles": Measure("cycles of the step", "count"),
    "seconds": Measure("time of the step", "s"),
    "utilization": Measure("utilisation", "share", less_is_better=False),
    "dram_bytes": Measure("DRAM", "bytes"),
    "energy_j": Measure("energy", "J"),
    "speedup": Measure("speedup", "ratio", less_is_better=False),
    "scaling": Measure("scaling efficiency", "share", less_is_better=False),
    "macs": Measure("MACs per cycle", "count", less_is_better=False),
    "area_mm2": Measure("area in mm²", "number"),
    "flits": Measure("flits sent", "count"),
    "controller_cycles": Measure("controller cycles per update", "count"),
    "controller_share": Measure("controller's share of the step", "share"),
    "stale_cycles": Measure("cycles, mapping kept", "count"),
    "gain": Measure("speedup by rebalancing", "ratio", less_is_better=False),
    "pays_after_steps": Measure("pays after steps", "number"),
    "lost_imbalance": Measure("lost: imbalance", "share"),
    "lost_memory": Measure("lost: memory", "share"),
    "lost_mesh": Measure("lost: mesh", "share"),
    "lost_drain": Measure("lost: drain", "share"),
    "lost_fill": Measure("lost: fill", "share"),
    "lost_inside": Measure("lost: inside pieces", "share"),
}
"""The quantities by name. Lost ones are shares of MAC slots; inside pieces: zeros of blocks, edges and scans."""


@dataclass(frozen=True)
class AblationPoint:
    """One measured point: a line of a plot (``series``), a place on its axis (``value``), and what was drawn with.

    ``figures`` by name of `MEASURES`; empty where ``failure`` says why there are none. ``setting`` is a digest of
    machine and step, so that a point is measured again when either has changed.
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


@dataclass(frozen=True)
class AblationRow:
    """One place of one line at one sparsity, over all seeds that worked; ``failures`` of those that did not."""

    series: str
    value: str
    sparsity: float
    spreads: dict[str, Spread]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class AblationRecord:
    """All points of one ablation: ``measures`` stand in its table, ``plotted`` in its plots.

    ``note`` says how to read it; ``conditions``: machine, step and date, as they stand beside every figure.
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

    def to_json(self) -> str:
        """JSON with one point a line."""
        head = asdict(self)
        del head["points"]
        lines = ",\n    ".join(json.dumps(asdict(point)) for point in self.points)
        return json.dumps(head, indent=2)[:-2] + f',\n  "points": [\n    {lines}\n  ]\n}}'

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AblationRecord":
        """The record that `to_json` wrote."""
        try:
            points = tuple(AblationPoint(**point) for point in values["points"])
            texts = {name: str(values[name]) for name in ("ablation", "title", "axis", "note", "conditions")}
            measures, plotted = (tuple(values[name]) for name in ("measures", "plotted"))
        except (KeyError, TypeError) as error:
            raise ReportError(
                f"this is no record of an ablation ({type(error).__name__}: {error}); "
                "pass a file that `acf bench ablation` wrote"
            ) from error
        unknown = [name for name in (*measures, *plotted) if name not in MEASURES]
        if unknown:
            raise ReportError(f"measure {unknown[0]!r} is not one of {', '.join(MEASURES)}; measure the ablation anew")
        return cls(**texts, measures=measures, plotted=plotted, points=points)


def written(name: str, value: float) -> str:
    """A value of the measure ``name`` as it stands in a table.

    >>> written("utilization", 0.9042), written("controller_share", 0.0004), written("cycles", 1519986)
    ('90.4 %', '0.04 %', '1,519,986')
    """
    kind = MEASURES[name].kind
    if kind == "share":
        return f"{100 * value:.{1 if value >= 0.01 or not value else 2}f} %"
    if kind == "bytes":
        return binary_bytes(round(value))
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "ratio":
        return f"{value:.3f}"
    if kind == "number":
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return si(value, kind)


def written_spread(name: str, spread: Spread | None) -> str:
    """Mean and deviation: of shares in points, of other measures in percent of the mean; none that rounds to 0.

    >>> written_spread("cycles", Spread(1000.0, 20.0, 3)), written_spread("utilization", Spread(0.9, 0.01, 3))
    ('1,000 ± 2.0 %', '90.0 % ± 1.0')
    """
    if spread is None:
        return "\N{EN DASH}"
    text = written(name, spread.mean)
    is_share = MEASURES[name].kind == "share"
    deviation = spread.deviation if is_share or not spread.mean else spread.deviation / abs(spread.mean)
    if deviation < 0.0005:
        return text
    return f"{text} ± {100 * deviation:.1f}" + ("" if is_share else " %")


def _spread(name: str, points: Iterable[AblationPoint]) -> Spread | None:
    values = [point.figures[name] for point in points if name in point.figures]
    if not values:
        return None
    return Spread(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))
