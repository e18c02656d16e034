"""TensorDash: tensor cores that skip zeros of one operand (Mahmoud et al., 2020)."""

from dataclasses import dataclass
from math import ceil

from acf.errors import ArchitectureError
from acf.sim.accelerator import ComputeCount
from acf.sim.accelerators.scheduler import (
    MAXIMUM_TABLE_BITS,
    PAPER_MOVES,
    Moves,
    drained_table,
    lane_words,
    schedule_table,
    tile_cycles,
)
from acf.sim.accelerators.tensorcore import TensorCore
from acf.sim.dispatch import makespan
from acf.trace import Gemm


@dataclass(frozen=True, kw_only=True)
class TensorDash(TensorCore):
    """`TensorCore` with ``depth``-deep staging buffers and a scheduler per PE row that skips zeros.

    The rows of a tile hold vectors of the operand with more zeros, which is measured as a tensor is
    produced; rows advance together. A row's schedule does not depend on the column it meets, so it is computed
    once for all of them. The product is unchanged: only pairs with a zero are left out.
    """

    depth: int = 4
    moves: Moves = PAPER_MOVES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lanes * self.depth > MAXIMUM_TABLE_BITS:
            raise ArchitectureError(
                f"lanes {self.lanes} x depth {self.depth} exceeds {MAXIMUM_TABLE_BITS} staged values per row, the most "
                "this model schedules; use 4 lanes with depth up to 4, or 8 with 2"
            )
        for step, _ in self.moves:
            if not 0 <= step < self.depth:
                raise ArchitectureError(
                    f"moves reach {step} steps ahead, the staging buffer is {self.depth} deep; "
                    f"keep every move's step within 0 to {self.depth - 1}"
                )
        if (0, 0) not in self.moves:
            raise ArchitectureError("moves lack (0, 0), the dense schedule; without it a lane may never drain, add it")

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        return (
            *super().notes,
            f"Skips zeros of the sparser operand, {self.depth} steps deep, {len(self.moves)} moves per lane; "
            f"at most {self.depth} times as fast as dense tensor cores.",
        )

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        a_is_sparser = gemm.a.sum() * gemm.b.size <= gemm.b.sum() * gemm.a.size
        sparse, other_vectors = (gemm.a, gemm.n) if a_is_sparser else (gemm.b.T, gemm.m)
        row_groups = tile_cycles(
            lane_words(sparse, self.lanes),
            schedule_table(self.lanes, self.depth, self.moves),
            drained_table(self.lanes, self.depth),
            self.rows,
            self.lanes,
            self.depth,
        )
        column_groups = ceil(other_vectors / self.columns)
        cycles = int(makespan(row_groups, column_groups, self.cores))
        return self._counted(gemm, int(row_groups.sum()) * column_groups, cycles, int(sparse.sum()) * other_vectors)

    def _counted(self, gemm: Gemm, core_cycles: int, cycles: int, multiplied_pairs: int) -> ComputeCount:
        """Slots and energy, given the cycles of all tiles together and of the longest core."""
        effectual = gemm.effectual_macs()
        tile_slots = self.rows * self.columns * self.lanes
        tiles = ceil(gemm.m / self.rows) * ceil(gemm.n / self.columns)
        energy = self.energy_j(core_cycles, tiles * ceil(gemm.k / self.lanes), tiles)
        control_pj = self._pj_per_core_cycle(
            "tensordash_schedulers_mw", "tensordash_a_multiplexers_mw", "tensordash_staging_buffers_mw"
        )
        return ComputeCount(
            cycles=cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": multiplied_pairs - effectual,
                "no_pair": core_cycles * tile_slots - multiplied_pairs,
                "imbalance": (cycles * self.cores - core_cycles) * tile_slots,
            },
            energy_j=energy | {"control": core_cycles * control_pj * 1e-12},
        )
