"""The Adaptive Compute Fabric, first version: clusters of zero-skipping scalar units over block-sparse jobs."""

from dataclasses import dataclass
from math import ceil
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from acf.cost import MAC_65NM_PJ, REGISTER_65NM_PJ_PER_BYTE, sram_pj_per_byte
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.dispatch import makespan
from acf.sim.jit import compiled
from acf.trace import Gemm

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class AdaptiveFabric(AcceleratorSpec):
    """``clusters`` of ``units_per_cluster`` scalar SCUs; a job is one ``tile`` x ``tile`` piece of the output.

    What is counted: a job walks only the blocks of the other operand that hold a non-zero; its ``tile`` rows are
    handed to the cluster's SCUs as they become free; an SCU spends one cycle on every position of a block row for
    each non-zero value of its own row, so zeros inside a present block still take a slot. Outputs that nobody
    needs (absent blocks of a weight gradient) are no jobs. Where jobs are few the reduction is split, and
    every part pays for adding its tile to the sum. The operand that is walked serially is the one that needs fewer
    slots. Jobs go in order to the first free cluster, each after ``job_overhead_cycles``.

    What is not counted yet: the mesh and its routing table, index walking by the memory controllers, the filling of
    cluster buffers, bank conflicts. DRAM bandwidth is counted, as for every architecture here.
    """

    clusters: int = 64
    units_per_cluster: int = 8
    tile: int = 16
    jobs_per_cluster: int = 8
    job_overhead_cycles: int = 4
    clock_hz: float = 250e6
    technology_nm: int = 65
    on_chip_bytes: int = 32 * 2**20
    dram_bytes_per_s: float = 76.8e9  # 4 channels of DDR4-2400, 64 bit
    dram_kind: str = "ddr"
    cluster_buffer_bytes: int = 16 * 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_65nm()

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle: one per SCU."""
        return self.clusters * self.units_per_cluster

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        return (
            f"{self.macs_per_cycle} scalar SCUs in {self.clusters} clusters at {self.clock_hz / 1e6:.0f} MHz.",
            f"Assumed: {self.job_overhead_cycles} cycles to start a job; energy per operation as published for "
            f"{self.technology_nm} nm tensor cores, not that of an FPGA; DRAM at 20 pJ/bit.",
            "Not counted yet: mesh, routing table, index walking, filling of cluster buffers, bank conflicts, "
            "normalisation, activation, weight update.",
        )

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        serial_a = _Work.of(gemm.a, gemm.b, gemm.needed, self)
        serial_b = _Work.of(gemm.b.T, gemm.a.T, None if gemm.needed is None else gemm.needed.T, self)
        work = serial_a if serial_a.slots <= serial_b.slots else serial_b
        jobs = job_cycles(work.row_slots, self.tile, self.units_per_cluster)
        jobs = jobs[jobs > 0] + self.job_overhead_cycles + work.merge_cycles
        cycles = int(makespan(jobs, 1, self.clusters))
        effectual = gemm.effectual_macs()
        job_slots = int(jobs.sum()) * self.units_per_cluster
        overhead = jobs.size * (self.job_overhead_cycles + work.merge_cycles) * self.units_per_cluster
        return ComputeCount(
            cycles=cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": work.slots - effectual,
                "job_imbalance": job_slots - overhead - work.slots,
                "job_overhead": overhead,
                "imbalance": cycles * self.macs_per_cycle - job_slots,
            },
            energy_j=self._energy_j(work.slots, jobs.size),
        )

    def _energy_j(self, slots: int, jobs: int) -> dict[str, float]:
        """Joules by component; an SCU without work is clock-gated.

        Per slot: one MAC, one weight read from the cluster buffer, one accumulator read and write in registers. Per
        ``tile`` slots one activation, and per job one tile of results.
        """
        read_pj = sram_pj_per_byte(self.technology_nm, self.cluster_buffer_bytes)
        write_pj = sram_pj_per_byte(self.technology_nm, self.cluster_buffer_bytes, write=True)
        operand_pj = self.value_bytes * read_pj * (1 + 1 / self.tile)
        result_pj = self.tile * self.tile * 4 * write_pj
        return {
            "mac": slots * (MAC_65NM_PJ.value + 8 * REGISTER_65NM_PJ_PER_BYTE.value) * 1e-12,
            "sram": (slots * operand_pj + jobs * result_pj) * 1e-12,
        }


@dataclass(frozen=True, eq=False)
class _Work:
    """SCU cycles of every row of every job, int64 ``[jobs, tile]``, and what merging a split job costs."""

    row_slots: NDArray[np.int64]
    merge_cycles: int

    @property
    def slots(self) -> int:
        """SCU cycles of all jobs."""
        return int(self.row_slots.sum())

    @classmethod
    def of(
        cls,
        serial: NDArray[np.bool_],
        blocked: NDArray[np.bool_],
        needed: NDArray[np.bool_] | None,
        spec: AdaptiveFabric,
    ) -> "_Work":
        """Work when ``serial [m, k]`` is walked value by value against blocks of ``blocked [k, n]``."""
        tile = spec.tile
        row_nonzeros = _pad(serial, 1, tile).reshape(serial.shape[0], -1, tile).sum(axis=2)
        present = _blocks_any(blocked, tile)
        widths = np.full(present.shape[1], tile)
        if blocked.shape[1] % tile:
            widths[-1] = blocked.shape[1] % tile
        tiles = np.ones((ceil(serial.shape[0] / tile), present.shape[1]), dtype=bool)
        if needed is not None:
            tiles = _blocks_any(needed, tile)
        split = min(present.shape[0], max(1, ceil(spec.jobs_per_cluster * spec.clusters / max(1, int(tiles.sum())))))
        parts = [
            _tile_rows(row_nonzeros[:, part].astype(np.float64) @ (present[part] * widths), tiles, tile)
            for part in np.array_split(np.arange(present.shape[0]), max(1, split))
        ]
        merge = ceil(tile * tile / spec.units_per_cluster) if split > 1 else 0
        return cls(np.concatenate(parts), merge)


def _tile_rows(slots: NDArray[np.float64], tiles: NDArray[np.bool_], tile: int) -> NDArray[np.int64]:
    """Row slots ``[m, column tiles]`` regrouped by job: ``[jobs, tile]`` for the tiles that are wanted."""
    padded = _pad(slots, 0, tile)
    by_tile = padded.reshape(-1, tile, slots.shape[1]).transpose(0, 2, 1)
    return by_tile[tiles].astype(np.int64)


def _blocks_any(pattern: NDArray[np.bool_], tile: int) -> NDArray[np.bool_]:
    """Which ``tile`` x ``tile`` blocks hold a non-zero."""
    padded = _pad(_pad(pattern, 0, tile), 1, tile)
    rows, cols = padded.shape
    blocks = padded.reshape(rows // tile, tile, cols // tile, tile)
    return np.asarray(blocks.any(axis=(1, 3)))


def _pad(array: NDArray[T], axis: int, multiple: int) -> NDArray[T]:
    """``array`` with zeros appended along ``axis`` up to a multiple."""
    missing = -array.shape[axis] % multiple
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


@compiled
def job_cycles(row_slots: NDArray[np.int64], tile: int, units: int) -> NDArray[np.int64]:
    """Cycles of every job when its ``tile`` rows go, in order, to the first free of ``units`` SCUs."""
    jobs = row_slots.shape[0]
    cycles = np.zeros(jobs, dtype=np.int64)
    free_at = np.zeros(units, dtype=np.int64)
    for job in range(jobs):
        free_at[:] = 0
        for row in range(tile):
            first = 0
            for unit in range(1, units):
                if free_at[unit] < free_at[first]:
                    first = unit
            free_at[first] += row_slots[job, row]
        cycles[job] = free_at.max()
    return cycles
