"""GPUs as rooflines: compute at the sustained rate or DRAM, whichever is slower, and a launch per operation."""

from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.vector import VectorUnit
from acf.trace import BitTensor

MAXIMUM_SPARSE_GAIN = 2.0
"""The most that a TensorDash-like kernel on a GPU gains: the second baseline of the fabric."""


@dataclass(frozen=True, kw_only=True)
class GpuRoofline(AcceleratorSpec):
    """``tensor_macs`` per cycle, of which large products sustain ``sustained_share``; zeros are stored and multiplied.

    With ``sparse_gain_limit`` above 1 a kernel skips zeros of the sparser operand perfectly, up to that gain. Power is
    ``idle_power_w`` all the time and up to ``board_power_w`` at the sustained rate; DRAM traffic comes on top.
    """

    kind: ClassVar[str] = "gpu"

    tensor_macs: int
    sustained_share: float
    idle_power_w: float
    board_power_w: float
    launch_overhead_s: float
    sparse_gain_limit: float
    die_mm2: float = field(metadata={"zero_allowed": True})  # 0: not known

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vector_lanes < 1:
            raise ArchitectureError("vector_lanes 0: a GPU computes all but products on its lanes; give their number")
        if self.sustained_share > 1:
            raise ArchitectureError(f"sustained_share {self.sustained_share} is above 1; give a share of the peak")
        if not 1 <= self.sparse_gain_limit <= MAXIMUM_SPARSE_GAIN:
            raise ArchitectureError(
                f"sparse_gain_limit {self.sparse_gain_limit} is not within 1 (dense kernels) to {MAXIMUM_SPARSE_GAIN}; "
                "use 1 or the 2 of a TensorDash-like kernel"
            )
        if self.board_power_w <= self.idle_power_w:
            raise ArchitectureError(
                f"board_power_w {self.board_power_w} does not exceed idle_power_w {self.idle_power_w}; give the power "
                "under full load"
            )

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle, at peak."""
        return self.tensor_macs

    @property
    def launch_cycles(self) -> int:
        """Cycles before an operation starts; neither compute nor memory overlaps with them."""
        return ceil(self.launch_overhead_s * self.clock_hz)

    @property
    def vector_unit(self) -> VectorUnit:
        """Scalar cores at their peak, one kernel after another; full board power at that peak."""
        operations_per_s = self.vector_lanes * self.clock_hz
        return VectorUnit(
            lanes=self.vector_lanes,
            value_bytes=self.value_bytes,
            operation_pj=(self.board_power_w - self.idle_power_w) / operations_per_s * 1e12,
            sram_read_pj_per_byte=0.0,
            sram_write_pj_per_byte=0.0,
            overlaps=False,
            launch_cycles=self.launch_cycles,
        )

    @property
    def vector_area_mm2(self) -> dict[str, float]:
        """Empty: part of the die."""
        return {}

    @property
    def static_power_w(self) -> float:
        """Watts drawn as long as the step lasts."""
        return self.idle_power_w

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres of the whole die: no split is published."""
        return {"die": self.die_mm2} if self.die_mm2 else {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        kernel = "dense kernels"
        if self.sparse_gain_limit > 1:
            kernel = f"a kernel that skips zeros perfectly, at most {self.sparse_gain_limit:g}x"
        return (
            f"Roofline: {self.peak_flops / 1e12:.0f} TFLOP/s peak, {self.sustained_share:.0%} of it sustained, "
            f"{self.dram_sustained_bytes_per_s / 1e12:.2g} TB/s, {self.technology_nm} nm; {kernel}.",
            f"Assumed: {self.launch_overhead_s * 1e6:g} us to launch an operation, {self.idle_power_w:g} W idle, "
            f"{self.board_power_w:g} W at the sustained rate, memory at {self.dram_pj_per_bit:g} pJ/bit as HBM2, "
            "tensors kept in the cache where they fit.",
            f"Vector work: {self.vector_lanes:,} lanes at peak or DRAM, whichever is slower, in fused kernels that do "
            "not overlap with products. Not counted: tiles that small products leave idle.",
        )

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        effectual = gemm.effectual_macs()
        skippable = min(int(gemm.a.sum()) * gemm.n, int(gemm.b.sum()) * gemm.m)
        multiplied = max(skippable, ceil(gemm.dense_macs / self.sparse_gain_limit))
        cycles = ceil(multiplied / (self.tensor_macs * self.sustained_share))
        joules_per_mac = (self.board_power_w - self.idle_power_w) / (self.peak_flops / 2 * self.sustained_share)
        return ComputeCount(
            cycles=cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": multiplied - effectual,
                "below_peak": cycles * self.tensor_macs - multiplied,
            },
            energy_j={"mac": multiplied * joules_per_mac},
        )

    def stored_bytes(self, bits: BitTensor, role: str) -> int:
        """Bytes of a tensor in memory: every value, zero or not."""
        return bits.size * self.value_bytes
