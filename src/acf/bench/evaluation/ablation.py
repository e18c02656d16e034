"""Ablations inside the evaluation: block size and regrow rate are trained, interconnects are played from the traces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from acf.bench.evaluation.rows import THIS_DEVICE, AblationRow, EvaluationRow
from acf.errors import SparsityError
from acf.masks import BlockDST

BLOCKS = (16, 32, 64, 128)
FRACTIONS = (0.1, 0.3, 0.5)
DEFAULT_FRACTION = BlockDST.fraction
"""The share of blocks that moves at the first update where none is named."""

FABRIC = "acf-512"
INTERCONNECTS: dict[str, dict[str, Any]] = {
    f"{FABRIC}-static": {"interconnect": "static"},
    FABRIC: {},
    f"{FABRIC}-crossbar": {"interconnect": "crossbar"},
}
"""The mapping of a dense layer, the rebalanced mesh, and links of unlimited width: fields of the fabric that differ."""


@dataclass(frozen=True)
class Point:
    """One value of what is varied: the ``system`` that is trained, and the ``machine`` its traced steps run on."""

    what: str
    value: str
    system: str
    machine: str = FABRIC


@dataclass(frozen=True)
class Base:
    """The rigl system that is varied; ``settings``, such as rate=0.8, are those it was given and all variants have."""

    sparsity: float
    block: int
    settings: str = ""

    def system(self, block: int = 0, fraction: float = DEFAULT_FRACTION) -> str:
        """The name of a variant: with another ``block``, or moving another ``fraction`` at the first update."""
        parts = [f"rigl-{100 * self.sparsity:g}/block={block or self.block}"]
        parts += [] if fraction == DEFAULT_FRACTION else [f"fraction={fraction:g}"]
        return "/".join([*parts, self.settings] if self.settings else parts)


def _blocks(base: Base) -> list[Point]:
    return [Point("block", str(side), base.system(side)) for side in BLOCKS]


def _regrow(base: Base) -> list[Point]:
    return [Point("regrow", f"{fraction:g}", base.system(fraction=fraction)) for fraction in FRACTIONS]


def _interconnects(base: Base) -> list[Point]:
    system = base.system()
    return [
        Point("interconnect", str(fields.get("interconnect", "mesh")), system, machine)
        for machine, fields in INTERCONNECTS.items()
    ]


ABLATIONS: dict[str, Callable[[Base], list[Point]]] = {
    "block": _blocks,
    "regrow": _regrow,
    "interconnect": _interconnects,
}
"""What may be varied, by name; every one includes the plain rigl system at the highest sparsity."""


def ablation_points(names: Sequence[str], base: Base) -> list[Point]:
    """The points of the named ablations.

    >>> [point.system for point in ablation_points(["regrow"], Base(0.9, 64, "rate=0.8"))][:2]
    ['rigl-90/block=64/fraction=0.1/rate=0.8', 'rigl-90/block=64/rate=0.8']
    """
    for name in names:
        if name not in ABLATIONS:
            raise SparsityError(f"ablation {name!r} is not one of {', '.join(ABLATIONS)}; use one of these names")
    return [point for name in dict.fromkeys(names) for point in ABLATIONS[name](base)]


def ablation_rows(points: Sequence[Point], rows: Sequence[EvaluationRow]) -> tuple[AblationRow, ...]:
    """The points whose system has finished runs, with what the evaluation's ``rows`` say of them."""
    found = {(row.machine, row.system): row for row in rows}
    return tuple(
        _row(point, found[THIS_DEVICE, point.system], found.get((point.machine, point.system)))
        for point in points
        if (THIS_DEVICE, point.system) in found
    )


def _row(point: Point, trained: EvaluationRow, played: EvaluationRow | None) -> AblationRow:
    return AblationRow(
        what=point.what,
        value=point.value,
        system=point.system,
        machine=point.machine,
        quality=next(iter(trained.metrics.values()), None),
        examples_per_s=trained.examples_per_s,
        machine_examples_per_s=None if played is None else played.examples_per_s,
        utilization=None if played is None else played.utilization,
    )
