"""How dense the gradients are that reach each layer, counted in the traced steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from acf.bench.evaluation.run import STAGES
from acf.bench.zeros.measure import layer_zeros
from acf.trace import Trace

Densities = dict[str, dict[str, dict[str, float]]]
"""Share of gradient elements that are not zero: by system, then by stage, then by layer."""


@dataclass(frozen=True)
class DensityRow:
    """One layer: the density of its output gradient at the end of seed 0, by system; None where it was not traced."""

    layer: str
    densities: dict[str, float | None]


def gradient_densities(trace: Trace) -> dict[str, float]:
    """Density of the gradient at the output of every layer, which both gradient products of the layer read."""
    shares, _ = layer_zeros(trace)
    return {layer: round(1.0 - zeros["gradients"], 5) for layer, zeros in shares.items() if "gradients" in zeros}


def density_rows(densities: Densities) -> tuple[DensityRow, ...]:
    """One row for each layer, with every system whose last traced step is there."""
    last = {system: stages[STAGES[-1]] for system, stages in densities.items() if STAGES[-1] in stages}
    layers = dict.fromkeys(layer for found in last.values() for layer in found)
    return tuple(DensityRow(layer, {system: found.get(layer) for system, found in last.items()}) for layer in layers)


def density_systems(rows: Sequence[DensityRow]) -> list[str]:
    """The systems of the rows, in order."""
    return list(dict.fromkeys(system for row in rows for system in row.densities))
