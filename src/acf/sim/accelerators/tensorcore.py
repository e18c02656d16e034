"""The dense baseline: tensor cores as TensorDash's authors describe them (their Table III)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import numpy as np

from acf.cost import (
    DATA_TYPES,
    FIGURES,
    LOGIC_ENERGY,
    logic_area_scale,
    logic_energy_scale,
    sram_leakage_mw,
    sram_mm2,
    sram_pj_per_byte,
)
from acf.cost.control import CONTROL_ENERGY, CONTROL_UNITS, charge_scale
from acf.cost.figures import (
    PUBLISHED_CLOCK_HZ,
    PUBLISHED_CORES,
    PUBLISHED_MACS_PER_CORE,
    PUBLISHED_ON_CHIP_BYTES,
    PUBLISHED_TRANSPOSERS,
)
from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.accelerators.supply import Supply
from acf.sim.accelerators.tiles import TileWork, pooled_cycles
from acf.sim.memory import DramTraffic
from acf.trace import BitTensor

TECHNOLOGY_NODES = tuple(node for node in LOGIC_ENERGY if node >= 22)
"""Technology nodes with figures for logic and SRAM; the machine is published at 65 nm, CACTI's table ends at 22 nm."""

OPERANDS = 2

FEEDING_RATE = 4
"""Multiple of the dense rate that transposers feed by default: the depth of TensorDash's staging buffers."""


@dataclass(frozen=True, kw_only=True)
class TensorCore(AcceleratorSpec):
    """``cores`` of ``rows`` x ``columns`` PEs with ``lanes`` MACs each, all adding to one output.

    A core computes a ``rows`` x ``columns`` tile of the output, ``lanes`` steps of the reduction per cycle, and takes
    the next tile when done; nothing is skipped.

    Tensors are stored on chip as groups of ``layout_values`` x ``layout_values``: blocks of consecutive channels,
    side by side along a row of the image. A bank gives ``bank_blocks_per_cycle`` of them; an operand that is reduced
    along another axis than its channels goes through ``transposers`` (0: enough for four times the dense rate), each of
    which takes in and gives out a group in a cycle. Where either is slower than compute, averaged over a product, the
    cores wait.

    The published table has cores, transposers and memories, but not what addresses the memories. ``control_energy``
    (`acf.cost.control`) other than "none" charges a controller as the fabric's for either operand of every
    ``multicast`` cores.
    """

    kind: ClassVar[str] = "tensorcore"

    cores: int
    rows: int
    columns: int
    lanes: int
    bank_bytes: int
    scratchpad_bytes: int
    multicast: int
    layout_values: int
    bank_blocks_per_cycle: int
    # Assumed: 128 for 256 cores. The paper gives their area, which is that of 154 staging buffers of 4 x 4 values, and
    # says that there are enough to keep the tiles busy: 128 feed both operands of tiles that skip three of four steps.
    transposers: int = field(metadata={"zero_allowed": True})
    data_type: str
    compresses_off_chip: bool
    control_energy: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.technology_nm not in TECHNOLOGY_NODES:
            raise ArchitectureError(
                f"technology_nm {self.technology_nm} is not one of {', '.join(map(str, TECHNOLOGY_NODES))}, for which "
                "both logic and SRAM have figures; use one of these"
            )
        if self.data_type not in DATA_TYPES:
            raise ArchitectureError(
                f"data_type {self.data_type!r} is not one of {', '.join(DATA_TYPES)}; use one of these names"
            )
        if self.control_energy not in CONTROL_ENERGY:
            raise ArchitectureError(
                f"control_energy {self.control_energy!r} is not one of {', '.join(CONTROL_ENERGY)}; use one of these"
            )
        if self.value_bytes != DATA_TYPES[self.data_type].value_bytes:
            raise ArchitectureError(
                f"value_bytes {self.value_bytes} does not hold {self.data_type}; "
                f"set value_bytes to {DATA_TYPES[self.data_type].value_bytes}"
            )

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle."""
        return self.cores * self.rows * self.columns * self.lanes

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        return (
            f"{self.cores} tensor cores, {self.macs_per_cycle} MACs per cycle, {self.technology_nm} nm.",
            f"Assumed: a read of on-chip memory serves {self.multicast} cores; DRAM is 4 x 32 bit LPDDR4-3200; "
            f"values {'compress to their non-zeros and a bit mask' if self.compresses_off_chip else 'stay dense'} "
            "off chip; DRAM overlaps with compute; "
            f"{self.transposer_count} transposers give a group of {self.layout_values} x {self.layout_values} a cycle, "
            f"each of {self.memory_banks} banks {self.bank_blocks_per_cycle} blocks of {self.layout_values}.",
            f"Vector work in {self.vector_lanes} lanes, overlapped with products. "
            "Not modelled: reduction split over cores, bank conflicts of strided windows.",
        )

    @property
    def transposer_count(self) -> int:
        """Transposers between on-chip memory and scratchpads."""
        vectors = self.cores / min(self.multicast, self.cores) * (self.rows + self.columns)
        return self.transposers or ceil(FEEDING_RATE * vectors * self.lanes / self.layout_values**2)

    @property
    def memory_banks(self) -> int:
        """Banks of each of the three on-chip memories: one for either operand, one for results."""
        return max(1, self.on_chip_bytes // (3 * self.bank_bytes))

    @property
    def output_channels(self) -> int:
        """Output channels that a core computes at a time."""
        return max(self.rows, self.columns)

    @property
    def supply(self) -> Supply:
        """How quickly on-chip memory feeds the scratchpads."""
        return Supply(
            layout_values=self.layout_values,
            sharing_cores=min(self.multicast, self.cores),
            blocks_per_memory_cycle=self.memory_banks * self.bank_blocks_per_cycle,
            transposed_blocks_per_cycle=self.transposer_count * self.layout_values,
        )

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        return self.count_batch([gemm], DramTraffic())

    def count_batch(self, gemms: Iterable[Gemm], traffic: DramTraffic) -> ComputeCount:
        """Independent products side by side: a core that has done its tile takes the next one, of whichever product."""
        works = [self.tile_work(gemm) for gemm in gemms]
        cycles = pooled_cycles(works, self.cores)
        waits = self.supply.waits([work.demand for work in works], cycles)
        lost, energy = Counter[str](), Counter[str]()
        for work in works:
            lost.update(work.lost_slots)
            energy.update(work.energy_j)
        idle = cycles * self.cores - sum(work.core_cycles for work in works)
        return ComputeCount(
            cycles=cycles + sum(waits.values()),
            dense_macs=sum(work.dense_macs for work in works),
            effectual_macs=sum(work.effectual_macs for work in works),
            lost_slots=dict(lost)
            | {"imbalance": idle * self.rows * self.columns * self.lanes}
            | {reason: waited * self.macs_per_cycle for reason, waited in waits.items()},
            energy_j=dict(energy),
        )

    def tile_work(self, gemm: Gemm) -> TileWork:
        """The tiles of one product: all alike."""
        tiles = ceil(gemm.m / self.rows) * ceil(gemm.n / self.columns)
        steps = ceil(gemm.k / self.lanes)
        effectual = gemm.effectual_macs()
        return TileWork(
            job_cycles=np.array([steps], dtype=np.int64),
            repeats=tiles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": gemm.dense_macs - effectual,
                "edge": tiles * steps * self.rows * self.columns * self.lanes - gemm.dense_macs,
            },
            energy_j=self.energy_j(tiles * steps, tiles * steps, tiles),
            demand=self.supply.demand(gemm, (self.rows, self.columns)),
        )

    def energy_j(self, core_cycles: int, staged_steps: int, tiles: int) -> dict[str, float]:
        """Joules by component: ``core_cycles`` of compute, ``staged_steps`` operand reads, ``tiles`` written.

        Idle cores are clock-gated. A step reads ``lanes`` values for every row and column of a tile.
        """
        core_pj = self._pj_per_core_cycle(
            self._published("tensorcore_compute_mw") + self._published("tensorcore_transposers_mw")
        )
        step_bytes = (self.rows + self.columns) * self.lanes * self.value_bytes
        bank_pj = sram_pj_per_byte(self.technology_nm, self.bank_bytes)
        scratchpad_pj = sram_pj_per_byte(self.technology_nm, self.scratchpad_bytes)
        result_pj = self.rows * self.columns * 4 * sram_pj_per_byte(self.technology_nm, self.bank_bytes, write=True)
        memory_pj = (
            staged_steps * step_bytes * (scratchpad_pj + bank_pj / self.supply.sharing_cores) + tiles * result_pj
        )
        energy_j = {"mac": core_cycles * core_pj * 1e-12, "sram": memory_pj * 1e-12}
        if self.control_energy == "none":
            return energy_j
        return energy_j | {"sequencers": core_cycles * self._sequencer_pj() * 1e-12}

    def _sequencer_pj(self) -> float:
        """Picojoules of what addresses both operands, a core's share of one cycle."""
        unit = CONTROL_UNITS["column controller"]
        per_core = OPERANDS / self.supply.sharing_cores * logic_energy_scale(self.technology_nm)
        return per_core * (unit.clock_pj(gated=True) + unit.switching_pj) * charge_scale(self.control_energy)

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component: published areas, scaled by MACs, memory by bytes, transposers by count."""
        compute = self._per_published_mac(self._published("tensorcore_compute_mm2"))
        transposers = self._published("tensorcore_transposers_mm2") * self.transposer_count / PUBLISHED_TRANSPOSERS
        transposers *= logic_area_scale(self.technology_nm)
        memory = 3 * FIGURES["on_chip_memory_mm2"].value * self.on_chip_bytes / PUBLISHED_ON_CHIP_BYTES
        memory *= sram_mm2(self.technology_nm, self.bank_bytes) / sram_mm2(65, self.bank_bytes)
        return {
            "mac": compute + transposers,
            "sram": memory + self._per_published_mac(self._scratchpads_mm2()),
        }

    def _scratchpads_mm2(self) -> float:
        """Scratchpads of the published 256 cores."""
        return FIGURES["tensorcore_scratchpads_mm2"].value

    def stored_bytes(self, bits: BitTensor, role: str) -> int:
        """Bytes of a tensor in memory: compressed where that is smaller, unless ``compresses_off_chip`` is False."""
        return super().stored_bytes(bits, role) if self.compresses_off_chip else bits.size * self.value_bytes

    @property
    def leakage_w(self) -> float:
        """Watts that leak from the on-chip memory and the scratchpads."""
        banks = self.on_chip_bytes / self.bank_bytes
        scratchpads = self.cores * sram_leakage_mw(self.technology_nm, self.scratchpad_bytes)
        return (banks * sram_leakage_mw(self.technology_nm, self.bank_bytes) + scratchpads) * 1e-3

    def _published(self, name: str) -> float:
        """A published figure of the 256-core chip, for this data type where compute depends on it."""
        data_type = DATA_TYPES[self.data_type]
        own = {"tensorcore_compute_mw": data_type.compute_mw, "tensorcore_compute_mm2": data_type.compute_mm2}
        if name in own:
            return own[name].value
        wider = data_type.value_bytes / 2 if name.startswith("tensordash") else 1.0  # multiplexers and registers
        return FIGURES[name].value * wider

    def _per_published_mac(self, published: float) -> float:
        """An area of the published chip, scaled by this machine's MACs and its node."""
        macs = self.macs_per_cycle / (PUBLISHED_CORES * PUBLISHED_MACS_PER_CORE)
        return published * macs * logic_area_scale(self.technology_nm)

    def _pj_per_core_cycle(self, published_mw: float) -> float:
        """Picojoules of one of this machine's cores in one cycle, scaled from the published chip by MACs and node."""
        scale = self.rows * self.columns * self.lanes / PUBLISHED_MACS_PER_CORE * logic_energy_scale(self.technology_nm)
        return published_mw * 1e9 / PUBLISHED_CLOCK_HZ / PUBLISHED_CORES * scale
