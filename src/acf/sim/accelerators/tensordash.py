"""TensorDash: tensor cores that skip zeros of one operand, or of both (Mahmoud et al., 2020)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from acf.cost import FIGURES, overhead_scales
from acf.cost.overheads import PUBLISHED_DEPTH
from acf.errors import ArchitectureError
from acf.lowering import Gemm, PackedRows
from acf.sim.accelerators.moves import Moves, check_moves, lane_levels
from acf.sim.accelerators.scheduler import MAXIMUM_LANES, pair_cycles, tile_cycles
from acf.sim.accelerators.tensorcore import TensorCore
from acf.sim.accelerators.tiles import TileWork

OPERAND_CHOICES = ("sparser", "paper")
"""sparser: of both operands in every pass; paper: activations forward, gradients for input gradients, then sparser."""


MAXIMUM_DEPTH = 64
"""Steps that a staging buffer may look ahead; the paper has 2 and 3."""


@dataclass(frozen=True, kw_only=True)
class TensorDash(TensorCore):
    """`TensorCore` with ``depth``-deep staging buffers and a scheduler per PE row that skips zeros.

    One-sided (``sides`` = 1), the rows of a tile hold vectors of the operand that ``skipped_operand`` names; rows
    advance together. A row's schedule does not depend on the column it meets, so it is computed once for all.
    Two-sided, every PE schedules the pairs of which neither value is zero, and all PEs of a tile advance together.

    Where at most ``bypass_zeros_share`` of what the rows are fed is zero, padding of images included, the product
    runs by the dense schedule with scheduler, multiplexers and staging buffers gated: an assumption, without which
    a model without zeros would pay 9 % of compute energy where the paper reports 0.5 % of the whole.

    Scratchpads are cut into ``scratchpad_banks`` (0: as many as the buffers are deep, so that one that drains in a
    cycle is refilled in one); fewer refill, and let a tile advance, by fewer steps in a cycle.
    """

    kind: ClassVar[str] = "tensordash"

    depth: int
    moves: Moves
    sides: int
    skipped_operand: str
    scratchpad_banks: int = field(metadata={"zero_allowed": True})
    bypass_zeros_share: float = field(metadata={"zero_allowed": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lanes > MAXIMUM_LANES:
            raise ArchitectureError(f"lanes {self.lanes} exceeds {MAXIMUM_LANES}, one word of this model; use fewer")
        if self.depth > MAXIMUM_DEPTH:
            raise ArchitectureError(f"depth {self.depth} exceeds {MAXIMUM_DEPTH}; use a shallower staging buffer")
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
            f"Scratchpads of {self.refilled_steps} banks refill as many steps in a cycle.",
            f"Assumed: dense schedule and gated control where at most {self.bypass_zeros_share:.0%} are zeros.",
        )

    @property
    def refilled_steps(self) -> int:
        """Steps of a staging buffer that its scratchpad can refill in a cycle."""
        return min(self.depth, self.scratchpad_banks or self.depth)

    @property
    def levels(self) -> int:
        """Groups of lanes that decide one after another within a cycle."""
        return len(lane_levels(self.lanes, self.moves))

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component."""
        return super().area_mm2 | {"control": self._per_published_mac(self._control_figures("mm2"))}

    def _scratchpads_mm2(self) -> float:
        """Scratchpads of the published 256 cores: in proportion to their banks, between one and the published four."""
        one_bank, four_banks = super()._scratchpads_mm2(), FIGURES["tensordash_scratchpads_mm2"].value
        return one_bank + (four_banks - one_bank) * (self.refilled_steps - 1) / (PUBLISHED_DEPTH - 1)

    def tile_work(self, gemm: Gemm) -> TileWork:
        """The tiles of one product: one schedule for every group of rows, two-sided one for every tile."""
        if self.sides == 2:
            return self._pair_tiles(gemm)
        turned = self._skips_right(gemm)
        rows, columns = (gemm.right, gemm.left) if turned else (gemm.left, gemm.right)
        skips = rows.zeros_share > self.bypass_zeros_share
        pairs = rows.nonzeros * columns.rows if skips else gemm.dense_macs
        tile = (self.columns, self.rows) if turned else (self.rows, self.columns)
        repeats = ceil(columns.rows / self.columns)
        return self._tiles(gemm, lambda banks: self._row_jobs(rows, skips, banks), repeats, pairs, skips, tile)

    def _skips_right(self, gemm: Gemm) -> bool:
        """Whether the zeros of the right operand are skipped; then it lies in the rows of the tiles."""
        if self.skipped_operand == "paper" and gemm.phase != "weight_grad":
            return False
        return gemm.left.zeros_share < gemm.right.zeros_share

    def _row_jobs(self, rows: PackedRows, skips: bool, banks: int) -> NDArray[np.int64]:
        """Cycles of a tile for every group of rows."""
        if not skips:
            return np.full(ceil(rows.rows / self.rows), ceil(rows.length / self.lanes), dtype=np.int64)
        return tile_cycles(rows, self.rows, self.lanes, self.depth, self.moves, banks)

    def _pair_tiles(self, gemm: Gemm) -> TileWork:
        """Two-sided: every tile has a schedule of its own."""
        tile = self.rows, self.columns
        if gemm.nonzero_pairs >= (1 - self.bypass_zeros_share) * gemm.dense_macs:
            repeats = ceil(gemm.n / self.columns)
            return self._tiles(
                gemm, lambda banks: self._row_jobs(gemm.left, False, banks), repeats, gemm.dense_macs, False, tile
            )

        def jobs(banks: int) -> NDArray[np.int64]:
            return pair_cycles(gemm.left, gemm.right, tile, self.lanes, self.depth, self.moves, banks)

        return self._tiles(gemm, jobs, 1, gemm.nonzero_pairs, True, tile)

    def _tiles(
        self,
        gemm: Gemm,
        jobs_with: Callable[[int], NDArray[np.int64]],
        repeats: int,
        multiplied_pairs: int,
        skips: bool,
        tile: tuple[int, int],
    ) -> TileWork:
        """Slots and energy when every job, by its number of banks, runs ``repeats`` times.

        ``multiplied_pairs`` are multiplied in all; ``tile`` is how many vectors of the left and the right operand meet.
        """
        jobs = jobs_with(self.refilled_steps)
        core_cycles, tiles = int(jobs.sum()) * repeats, jobs.size * repeats
        unhindered = core_cycles if self.refilled_steps == self.depth else int(jobs_with(self.depth).sum()) * repeats
        effectual = gemm.effectual_macs()
        tile_slots = self.rows * self.columns * self.lanes
        control_pj = self._pj_per_core_cycle(self._control_figures("mw")) if skips else 0.0
        # A greedy schedule can now and then be quicker with fewer banks; that is no conflict of negative length.
        conflicts = max(0, core_cycles - unhindered) * tile_slots
        return TileWork(
            job_cycles=jobs,
            repeats=repeats,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": multiplied_pairs - effectual,
                "no_pair": core_cycles * tile_slots - conflicts - multiplied_pairs,
            }
            | ({"scratchpad_banks": conflicts} if conflicts else {}),
            energy_j=self.energy_j(core_cycles, tiles * ceil(gemm.k / self.lanes), tiles)
            | {"control": core_cycles * control_pj * 1e-12},
            demand=self.supply.demand(gemm, tile),
        )

    def _control_figures(self, unit: str) -> float:
        """Published figure of all that TensorDash adds, in "mw" or "mm2", scaled to this geometry."""
        scales = overhead_scales(self.rows, self.columns, self.depth, len(self.moves), self.sides)
        return sum(self._published(f"tensordash_{name}_{unit}") * scale for name, scale in scales.items())
