"""One result beside another: whole steps in time, energy and energy-delay product, as they are and at equal size."""

from dataclasses import dataclass

from acf.sim.result import Result


@dataclass(frozen=True)
class Comparison:
    """``result`` over ``baseline``: every ratio is above 1 where ``result`` is better.

    Ratios at equal size divide the speedup by how much more the machine has, as if speed grew in proportion: of peak
    MACs per second, or of area. They say what a design makes of its silicon; large machines are harder to keep busy.
    """

    result: Result
    baseline: Result

    @property
    def speedup(self) -> float:
        """Ratio of the times of whole steps."""
        return self.result.speedup_over(self.baseline)

    @property
    def equal_peak_speedup(self) -> float:
        """`speedup` at equal peak MACs per second."""
        return self.speedup * self.baseline.peak_macs_per_s / self.result.peak_macs_per_s

    @property
    def equal_area_speedup(self) -> float | None:
        """`speedup` at equal area; None where an area is not known, or they are of different technology nodes."""
        own, other = self.result.total_area_mm2, self.baseline.total_area_mm2
        if own is None or other is None or self.result.technology_nm != self.baseline.technology_nm:
            return None
        return self.speedup * other / own

    @property
    def energy_ratio(self) -> float | None:
        """Energy of the baseline's whole step over this one's; None where one has no energy figure."""
        own, other = self.result.energy_j, self.baseline.energy_j
        return other / own if own and other else None

    @property
    def energy_delay_ratio(self) -> float | None:
        """Ratio of energy-delay products: `energy_ratio` times `speedup`."""
        return None if self.energy_ratio is None else self.energy_ratio * self.speedup
