"""TensorDash: tensor cores that skip zeros of one operand, or of both (Mahmoud et al., 2020)."""

from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from acf.cost import FIGURES, overhead_scales
from acf.errors import ArchitectureError
from acf.sim.accelerator import ComputeCount
from acf.sim.accelerators.moves import PAPER_MOVES, Moves, check_moves, lane_levels
from acf.sim.accelerators.scheduler import MAXIMUM_LANES, pair_cycles, tile_cycles
from acf.sim.accelerators.tensorcore import TensorCore
from acf.sim.dispatch import makespan
from acf.trace import Gemm, PackedRows

OPERAND_CHOICES = ("sparser", "paper")
"""sparser: of both operands in every pass; paper: activations forward, gradients for input gradients, then sparser."""


@dataclass(frozen=True, kw_only=True)
class TensorDash(TensorCore):
    """`TensorCore` with ``depth``-deep staging buffers and a scheduler per PE row that skips zeros.

    One-sided (``sides`` = 1), the rows of a tile hold vectors of the operand that ``skipped_operand`` names; rows
    advance together. A row's schedule does not depend on the column it meets, so it is computed once for all.
    Two-sided, every PE schedules the pairs of which neither value is zero, and all PEs of a tile advance together.

    Where at most ``bypass_zeros_share`` of what the rows are fed is zero, padding of images included, the product
    runs by the dense schedule with scheduler, multiplexers and staging buffers gated: an assumption, without which
    a model without zeros would pay 9 % of compute energy where the paper reports 0.5 % of the whole.
    """

    depth: int = 4
    moves: Moves = PAPER_MOVES
    sides: int = 1
    skipped_operand: str = "sparser"
    bypass_zeros_share: float = field(default=0.01, metadata={"zero_allowed": True})
    scratchpads_mm2: float = FIGURES["tensordash_scratchpads_mm2"].value  # of the published 256 cores

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lanes > MAXIMUM_LANES:
            raise ArchitectureError(f"lanes {self.lanes} exceeds {MAXIMUM_LANES}, one word of this model; use fewer")
        if self.sides not in (1, 2):
            raise ArchitectureError(f"sides {self.sides} is not 1 or 2; skip zeros of one operand or of both")
        if self.skipped_operand not in OPERAND_CHOICES:
            raise ArchitectureError(
                f"skipped_operand {self.skipped_operand!r} is not one of {', '.join(OPERAND_CHOICES)}; use one of these"
            )
        check_moves(self.moves, self.lanes, self.depth)

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        choice = "both operands" if self.sides == 2 else f"one operand ({self.skipped_operand})"
        return (
            *super().notes,
            f"Skips zeros of {choice}, {self.depth} steps deep, {len(self.moves)} moves per lane, "
            f"{self.levels} scheduler levels; at most {self.depth} times as fast as dense tensor cores.",
            f"Assumed: dense schedule and gated control where at most {self.bypass_zeros_share:.0%} are zeros.",
        )

    @property
    def levels(self) -> int:
        """Groups of lanes that decide one after another within a cycle."""
        return len(lane_levels(self.lanes, self.moves))

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component."""
        return super().area_mm2 | {"control": self._per_published_mac(self._control_figures("mm2"))}

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        if self.sides == 2:
            return self._count_pairs(gemm)
        rows, columns = self._oriented(gemm)
        skips = rows.zeros_share > self.bypass_zeros_share
        jobs = self._row_jobs(rows, skips)
        pairs = rows.nonzeros * columns.rows if skips else gemm.dense_macs
        return self._counted(gemm, jobs, ceil(columns.rows / self.columns), pairs, skips)

    def _oriented(self, gemm: Gemm) -> tuple[PackedRows, PackedRows]:
        """The operand whose zeros are skipped, and the other."""
        left_is_sparser = gemm.left.zeros_share >= gemm.right.zeros_share
        if left_is_sparser or (self.skipped_operand == "paper" and gemm.phase != "weight_grad"):
            return gemm.left, gemm.right
        return gemm.right, gemm.left

    def _row_jobs(self, rows: PackedRows, skips: bool) -> NDArray[np.int64]:
        """Cycles of a tile for every group of rows."""
        if not skips:
            return np.full(ceil(rows.rows / self.rows), ceil(rows.length / self.lanes), dtype=np.int64)
        return tile_cycles(rows, self.rows, self.lanes, self.depth, self.moves)

    def _count_pairs(self, gemm: Gemm) -> ComputeCount:
        """Two-sided: every tile has a schedule of its own."""
        skips = gemm.nonzero_pairs < (1 - self.bypass_zeros_share) * gemm.dense_macs
        if not skips:
            jobs = self._row_jobs(gemm.left, skips)
            return self._counted(gemm, jobs, ceil(gemm.n / self.columns), gemm.dense_macs, skips)
        jobs = pair_cycles(gemm.left, gemm.right, (self.rows, self.columns), self.lanes, self.depth, self.moves)
        return self._counted(gemm, jobs, 1, gemm.nonzero_pairs, skips)

    def _counted(
        self, gemm: Gemm, jobs: NDArray[np.int64], repeats: int, multiplied_pairs: int, skips: bool
    ) -> ComputeCount:
        """Slots and energy when every job runs ``repeats`` times and multiplies ``multiplied_pairs`` in all."""
        cycles = int(makespan(jobs, repeats, self.cores))
        core_cycles, tiles = int(jobs.sum()) * repeats, jobs.size * repeats
        effectual = gemm.effectual_macs()
        tile_slots = self.rows * self.columns * self.lanes
        control_pj = self._pj_per_core_cycle(self._control_figures("mw")) if skips else 0.0
        return ComputeCount(
            cycles=cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": multiplied_pairs - effectual,
                "no_pair": core_cycles * tile_slots - multiplied_pairs,
                "imbalance": (cycles * self.cores - core_cycles) * tile_slots,
            },
            energy_j=self.energy_j(core_cycles, tiles * ceil(gemm.k / self.lanes), tiles)
            | {"control": core_cycles * control_pj * 1e-12},
        )

    def _control_figures(self, unit: str) -> float:
        """Published figure of all that TensorDash adds, in "mw" or "mm2", scaled to this geometry."""
        scales = overhead_scales(self.rows, self.columns, self.depth, len(self.moves), self.sides)
        return sum(self._published(f"tensordash_{name}_{unit}") * scale for name, scale in scales.items())
