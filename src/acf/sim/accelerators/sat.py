"""SAT: a systolic array of unified PEs for N:M sparse training (Fang et al., 2023, arXiv 2309.13015).

Array size, clock, adder latency and memory are named assumptions, not figures of the authors.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from acf.cost import (
    MAC_65NM_MM2,
    MAC_65NM_PJ,
    REGISTER_65NM_PJ_PER_BYTE,
    sram_leakage_mw,
    sram_mm2,
    sram_pj_per_byte,
)
from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.accelerators.sore import reduction_cycles
from acf.sim.accelerators.systolic import Array, ProductMapping, output_stationary, weight_stationary
from acf.trace import BitTensor


@dataclass(frozen=True)
class Product:
    """A product by its shape ``[m, k] @ [k, n]``; ``sparse`` where ``b`` is N:M along ``k``, ``taps`` as in `Gemm`.

    ``updates_weights`` is false for a gradient of something that is no weight, as in attention.
    """

    phase: str
    m: int
    k: int
    n: int
    taps: int = 1
    sparse: bool = False
    updates_weights: bool = True


@dataclass(frozen=True, kw_only=True)
class Sat(AcceleratorSpec):
    """``rows`` x ``columns`` PEs; ``group_kept`` of every ``group_size`` weights (N:M) take N cycles instead of M.

    Weights count as N:M where their zeros say so, along the reduction; others run dense, and so do weight gradients,
    output-stationary. The dataflow of the other passes is chosen per product by fewest cycles. After a weight gradient
    the vector engine updates the weights and, with ``pregenerate``, the reduction engine makes the compact weights of
    both passes; the array waits if they are slower. Without it the engine runs before every sparse pass.
    ``group_kept == group_size`` is the same array for dense training, which needs no reduction engine.
    """

    kind: ClassVar[str] = "sat"

    group_kept: int
    group_size: int
    rows: int
    columns: int
    adder_latency_cycles: int
    interleave: int
    pregenerate: bool
    reduction_lanes: int
    update_lanes: int
    bank_bytes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_65nm()
        if self.group_kept > self.group_size:
            raise ArchitectureError(
                f"group_kept {self.group_kept} exceeds group_size {self.group_size}; N:M keeps at most all M of a group"
            )

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle: one per PE."""
        return self.rows * self.columns

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        return (
            f"{self.rows} x {self.columns} PEs at {self.clock_hz / 1e6:.0f} MHz; "
            f"{self.group_kept}:{self.group_size} weights.",
            f"Assumed: array size, clock, an adder of {self.adder_latency_cycles} stages with {self.interleave} "
            f"accumulations in turn, {self.update_lanes} update lanes, memory; energy per operation as published for "
            f"{self.technology_nm} nm tensor cores, not that of an FPGA; DRAM at {self.dram_pj_per_bit:g} pJ/bit.",
            "Not counted: energy and area of the reduction and update engines and of registers, traffic of master "
            "weights, normalisation, activation.",
        )

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component: MACs of the published tensor cores, CACTI's banks; an ASIC's, no FPGA's."""
        banks = self.on_chip_bytes / self.bank_bytes
        return {
            "mac": self.macs_per_cycle * MAC_65NM_MM2.value,
            "sram": banks * sram_mm2(self.technology_nm, self.bank_bytes),
        }

    @property
    def leakage_w(self) -> float:
        """Watts that leak from the on-chip memory."""
        return self.on_chip_bytes / self.bank_bytes * sram_leakage_mw(self.technology_nm, self.bank_bytes) * 1e-3

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        sparse = gemm.phase != "weight_grad" and gemm.weighted and self.follows_groups(gemm.b, gemm.taps)
        product = Product(gemm.phase, gemm.m, gemm.k, gemm.n, gemm.taps, sparse, updates_weights=gemm.weighted)
        mapping, engine_cycles = self.map_product(product), self.engine_cycles(product)
        multiplied = gemm.m * gemm.n * self._steps(product)
        effectual = gemm.effectual_macs()
        return ComputeCount(
            cycles=mapping.cycles + engine_cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": multiplied - effectual,
                "edge": mapping.work_cycles * self.macs_per_cycle - multiplied,
                "latency": mapping.latency_cycles * self.macs_per_cycle,
                "fill": mapping.fill_cycles * self.macs_per_cycle,
                "engines": engine_cycles * self.macs_per_cycle,
            },
            energy_j=self._energy_j(multiplied, mapping),
        )

    def follows_groups(self, weights: NDArray[np.bool_], taps: int = 1) -> bool:
        """Whether ``weights [k, n]`` hold at most N of every M consecutive channels along ``k``, at every tap."""
        k, n = weights.shape
        if self.group_kept == self.group_size or (k // taps) % self.group_size:
            return False
        groups = weights.reshape(k // self.group_size, self.group_size, n)
        return bool((groups.sum(axis=1, dtype=np.int32) <= self.group_kept).all())

    @property
    def has_update_engine(self) -> bool:
        """True: the engines beside the array update weights; their cycles are part of a weight gradient's."""
        return True

    def product_cycles(self, product: Product) -> int:
        """Cycles of a product given by its shape alone, engines included."""
        return self.map_product(product).cycles + self.engine_cycles(product)

    def map_product(self, product: Product) -> ProductMapping:
        """The dataflow with the fewest cycles; a weight gradient is always output-stationary."""
        array = Array(self.rows, self.columns, self.adder_latency_cycles, self.interleave)
        outputs = output_stationary(array, product.m, self._steps(product), product.n)
        if product.phase == "weight_grad":
            return outputs
        groups = ceil(product.k / self.group_size)
        per_group = self.group_kept if product.sparse else self.group_size
        weights = weight_stationary(array, product.m, groups, per_group, product.n)
        return min(outputs, weights, key=lambda mapping: mapping.cycles)

    def engine_cycles(self, product: Product) -> int:
        """Cycles that the array waits for the update and reduction engines."""
        if product.phase != "weight_grad":
            return 0 if self.pregenerate or not product.sparse else self._reduction_cycles(product.k * product.n)
        if not product.updates_weights:
            return 0
        weights = product.m * product.n
        grouped = product.m % self.group_size == 0 and (product.n // product.taps) % self.group_size == 0
        prunes = self.pregenerate and grouped and self.group_kept < self.group_size
        # Both compact forms, along input channels for the forward and along output channels for the backward pass.
        engines = max(ceil(weights / self.update_lanes), 2 * self._reduction_cycles(weights) if prunes else 0)
        return max(0, engines - self.map_product(product).cycles)

    def _reduction_cycles(self, weights: int) -> int:
        return reduction_cycles(weights // self.group_size, self.group_size, self.reduction_lanes)

    def _steps(self, product: Product) -> int:
        """Multiplications of one output."""
        return product.k // self.group_size * self.group_kept if product.sparse else product.k

    def _energy_j(self, multiplied: int, mapping: ProductMapping) -> dict[str, float]:
        """Joules by component: a MAC with its accumulator in registers, operands and sums through on-chip banks."""
        read_pj = sram_pj_per_byte(self.technology_nm, self.bank_bytes)
        write_pj = sram_pj_per_byte(self.technology_nm, self.bank_bytes, write=True)
        memory_pj = mapping.streamed_values * self.value_bytes * read_pj
        memory_pj += mapping.partial_sums * 4 * (read_pj + write_pj) / 2  # FP32 sums, written and read in turn
        return {
            "mac": multiplied * (MAC_65NM_PJ.value + 8 * REGISTER_65NM_PJ_PER_BYTE.value) * 1e-12,
            "sram": memory_pj * 1e-12,
        }

    def stored_bytes(self, bits: BitTensor, role: str) -> int:
        """Bytes in memory: N:M weights as values with an index in their group, everything else dense."""
        dense = bits.size * self.value_bytes
        if role != "weight" or not self._is_compact(bits):
            return dense
        index_bits = (self.group_size - 1).bit_length()
        return ceil(bits.size // self.group_size * self.group_kept * (8 * self.value_bytes + index_bits) / 8)

    def _is_compact(self, bits: BitTensor) -> bool:
        """Whether a weight is N:M along either axis; one pass reduces along inputs, the other along outputs."""
        if bits.nonzeros * self.group_size > bits.size * self.group_kept:
            return False
        pattern = bits.to_bool()
        return self.follows_groups(pattern) or self.follows_groups(pattern.T)
