"""The Adaptive Compute Fabric as an accelerator: cycles, energy and area of one matrix product."""

from dataclasses import dataclass
from math import ceil, sqrt
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
from acf.cost.mesh import link_pj, router_mm2, router_pass_pj
from acf.errors import ArchitectureError
from acf.lowering import BALANCERS, SERIAL, FabricShape, Gemm, Program, Stream
from acf.lowering.packing import lower_product
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.fabric.play import ENGINES, DramPort, Played, play

VECTOR_PASSES: dict[str, int] = {"forward": 3, "input_grad": 4, "weight_grad": 8}
"""Operations of the vector unit on every output value of a product, an assumption.

forward: a normalisation's sums and its affine map, then the activation; input_grad: the activation's derivative, two
sums and their combination; weight_grad: AdamW on every kept weight.
"""


@dataclass(frozen=True, kw_only=True)
class AdaptiveFabric(FabricShape, AcceleratorSpec):
    """A mesh of clusters of sparse compute units, fed by index-aware memory controllers at its edges.

    A controller at the left of each mesh row sends pieces of the serial operand, one at the top of each mesh column
    pieces of the parallel one; routers copy a packet to the clusters that need it. A unit takes a non-zero of its
    rows and multiplies it with ``lanes`` values a cycle of the matching row of a block. ``docs/fabric.md`` has the
    machine in full. ``engine`` "exact" steps every queue in every cycle and gives the same figures, slowly.
    """

    kind: ClassVar[str] = "fabric"

    dram_latency_s: float
    bank_bytes: int  # of a bank of the on-chip memory
    vector_lanes: int  # values a cycle, over all controllers
    topology_every_steps: int  # training steps between two updates of blocks and routing table
    engine: str

    def __post_init__(self) -> None:
        FabricShape.__post_init__(self)
        AcceleratorSpec.__post_init__(self)
        self.require_65nm()
        for name, choices in (("balancer", BALANCERS), ("engine", ENGINES)):
            if getattr(self, name) not in choices:
                raise ArchitectureError(
                    f"{name} {getattr(self, name)!r} is not one of {', '.join(choices)}; use one of these names"
                )

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle."""
        return self.scus * self.lanes

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        return (
            f"{self.scus} SCUs of {self.lanes} MAC in {self.mesh_rows} x {self.mesh_columns} clusters at "
            f"{self.clock_hz / 1e6:.0f} MHz; {self.interconnect} interconnect, {self.balancer} balancer.",
            f"Assumed: energy per operation as published for {self.technology_nm} nm tensor cores, no FPGA's; "
            f"{self.vector_lanes} vector lanes for what is no product, after each product and not overlapped; "
            f"blocks move every {self.topology_every_steps} steps.",
        )

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product whose operands are on chip."""
        return self.count_with_dram(gemm, 0)

    def count_with_dram(self, gemm: Gemm, dram_bytes: int) -> ComputeCount:
        """The same when ``dram_bytes`` cross the pins meanwhile."""
        product = tile_product(gemm, self)
        return self.count_program(gemm, product, lower_product(product, self), dram_bytes)

    def count_program(self, gemm: Gemm, product: TiledProduct, program: Program, dram_bytes: int) -> ComputeCount:
        """The same for a ``program`` of the product that is already made, whatever its mapping."""
        played = play(program, self, self.dram_port, dram_bytes, self.engine)
        effectual = gemm.effectual_macs()
        walked = self._walked_slots(product, effectual)
        return ComputeCount(
            cycles=played.cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots=self._lost_slots(played, walked, effectual),
            energy_j=self._energy_j(program, walked) | {"control": self._control_j(product, program.reduces)},
            other_cycles=self._other_cycles(gemm, product, program.reduces),
        )

    @property
    def dram_port(self) -> DramPort:
        """What memory outside the chip gives to one mesh row."""
        bytes_per_cycle = self.dram_sustained_bytes_per_s / self.clock_hz / self.mesh_rows
        return DramPort(bytes_per_cycle, ceil(self.dram_latency_s * self.clock_hz))

    def dram_cycles(self, dram_bytes: int) -> int:
        """The fewest cycles at the pins' peak rate: the sustained rate and its stalls are part of `count_with_dram`."""
        return ceil(dram_bytes / self.dram_pin_bytes_per_s * self.clock_hz)

    def _lost_slots(self, played: Played, walked: int, effectual: int) -> dict[str, int]:
        """MAC slots that were no effectual MAC, by reason."""
        lost = {reason: cycles * self.lanes for reason, cycles in played.by_reason.items()}
        issued = lost.pop("work")
        beyond = "gated" if self.skip == "gate" else "edge"
        return {beyond: issued - walked, "ineffectual": walked - effectual} | lost

    def _walked_slots(self, product: TiledProduct, effectual: int) -> int:
        """MACs of every non-zero of the serial operand against the width of every block it meets.

        Where zeros of both are skipped, only the effectual ones.
        """
        if self.skip == "both":
            return effectual
        widths = product.parallel.widths.astype(np.float64)
        present = product.present.astype(np.float64)
        if product.needed is None:
            return int(np.dot(product.serial.tile_nonzeros.sum(axis=0), present.T @ widths))
        met: NDArray[np.float64] = product.serial.tile_nonzeros.astype(np.float64) @ present.T
        columns: NDArray[np.float64] = (met * product.needed).sum(axis=0)
        return int(np.dot(columns, widths))

    def _other_cycles(self, gemm: Gemm, product: TiledProduct, reduces: bool) -> int:
        """Cycles of the vector unit on the outputs, and this step's share of working out a new routing table."""
        kept = gemm.m * gemm.n if gemm.needed is None else int(gemm.needed.sum())
        vector = ceil(kept * VECTOR_PASSES[gemm.phase] / self.vector_lanes)
        return vector + ceil(self.update_cycles(product, reduces) / self.topology_every_steps)

    def _control_j(self, product: TiledProduct, reduces: bool) -> float:
        """Joules of this step's share of a new routing table: a word read and one written in each of its cycles."""
        access_pj = 4 * (self._sram_pj(self._queue_bytes) + self._sram_pj(self._queue_bytes, True))
        return self.update_cycles(product, reduces) / self.topology_every_steps * access_pj * 1e-12

    def update_cycles(self, product: TiledProduct, reduces: bool) -> int:
        """Cycles of the small controller when blocks have moved: sharing the work anew and writing the table.

        A cycle per compare, add or access. The order of the reduction compares all bins at once; an entry of the table
        is one depth for one mesh row, as wide as the mesh. Every block is entered in the index by columns, and a
        prefix-sum unit sums ``tile`` pointers at a time, twice.
        """
        columns, steps = (int(size) for size in product.present.shape)
        share = BALANCERS[self.balancer].controller_cycles
        table = self.table_cycles(product, reduces)
        if reduces:
            return share(_output_tiles(product), columns + product.serial.tiles, self.mesh_columns) + table
        return share(columns, steps, self.mesh_columns) + steps**2 + table

    def table_cycles(self, product: TiledProduct, reduces: bool) -> int:
        """Those of `update_cycles` that write the routing table: spent even if the sharing is kept."""
        if reduces:
            return _output_tiles(product)
        columns, steps = (int(size) for size in product.present.shape)
        index = int(product.present.sum()) + ceil(columns / self.tile) + ceil(steps / self.tile)
        return index + steps * self.mesh_rows

    def _energy_j(self, program: Program, slots: int) -> dict[str, float]:
        """Joules by component for ``slots`` MACs; a unit without work, or with a zero, is clock-gated.

        Per slot: a MAC, its sum in registers, one value of a block. Per row and block: the sums in and out of the
        accumulators. Per packet: a read of on-chip memory, every hop, and a write in every cluster that takes it.
        Results leave the accumulators, travel, and are written on chip.
        """
        picojoules = self._compute_pj(program, slots)
        for stream in (program.rows, program.columns):
            picojoules = {name: picojoules[name] + value for name, value in self._packets_pj(stream).items()}
        result_flits = program.round_flits.astype(np.int64)
        distance = self.mesh_rows if program.reduces else np.arange(1, self.mesh_columns + 1)
        moved = int(result_flits.sum()) * self.link_bytes
        picojoules["mesh"] += int((result_flits * distance).sum()) * self.link_bytes * self._hop_pj_per_byte
        picojoules["sram"] += moved * (self._sram_pj(self._accumulator_bytes) + self._sram_pj(self.bank_bytes, True))
        return {name: value * 1e-12 for name, value in picojoules.items()}

    def _compute_pj(self, program: Program, slots: int) -> dict[str, float]:
        met = int(np.bitwise_count(program.rows.parallel_tiles).sum())  # a serial piece and a parallel one in a cluster
        sums_pj = (
            met
            * self.tile**2
            * 4
            * (self._sram_pj(self._accumulator_bytes) + self._sram_pj(self._accumulator_bytes, True))
        )
        values_pj = slots * self.value_bytes * self._sram_pj(self._block_store_bytes)
        return {
            "mac": slots * (MAC_65NM_PJ.value + 8 * REGISTER_65NM_PJ_PER_BYTE.value),
            "sram": sums_pj + values_pj,
            "mesh": 0.0,
        }

    def _packets_pj(self, stream: Stream) -> dict[str, float]:
        """Picojoules of fetching, carrying and storing all packets of a stream."""
        payload = stream.flits.astype(np.int64) * self.link_bytes
        hops = np.zeros(stream.packets, dtype=np.int64)
        for place in range(max(self.mesh_rows, self.mesh_columns)):
            hops[(stream.destinations >> np.uint64(place)) & np.uint64(1) > 0] = place + 1
        copies = np.bitwise_count(stream.destinations).astype(np.int64)
        serial = stream.kind == SERIAL
        stored = float((payload * copies)[serial].sum()) * self._sram_pj(self._queue_bytes, True)
        stored += float((payload * copies)[~serial].sum()) * self._sram_pj(self._block_store_bytes, True)
        return {
            "mac": 0.0,
            "sram": float(payload.sum()) * self._sram_pj(self.bank_bytes) + stored,
            "mesh": float((payload * hops).sum()) * self._hop_pj_per_byte,
        }

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component: published MACs, memories of the SRAM table, routers as derived."""
        accumulators = sram_mm2(self.technology_nm, self._accumulator_bytes) * self.scus
        on_chip = sram_mm2(self.technology_nm, self.bank_bytes) * self.on_chip_bytes / self.bank_bytes
        routers = router_mm2(self.link_bytes, virtual_channels=1, queue_flits=self.hop_cycles, groups=0)
        return {
            "mac": MAC_65NM_MM2.value * self.macs_per_cycle,
            "sram": self._cluster_memory_mm2 * self.clusters + accumulators + on_chip,
            "mesh": routers * self.clusters,
        }

    @property
    def leakage_w(self) -> float:
        """Watts that leak from the memories."""
        cluster = sram_leakage_mw(self.technology_nm, self._queue_bytes)
        cluster += sram_leakage_mw(self.technology_nm, self._block_store_bytes)
        accumulators = sram_leakage_mw(self.technology_nm, self._accumulator_bytes) * self.scus
        on_chip = sram_leakage_mw(self.technology_nm, self.bank_bytes) * self.on_chip_bytes / self.bank_bytes
        return (cluster * self.clusters + accumulators + on_chip) * 1e-3

    @property
    def _queue_bytes(self) -> int:
        """Memory of one cluster for serial pieces."""
        return self.queue_packets * self.tile**2 * self.value_bytes

    @property
    def _block_store_bytes(self) -> int:
        """Memory of one cluster for parallel pieces."""
        return self.parallel_slots * self.tile**2 * self.value_bytes

    @property
    def _accumulator_bytes(self) -> int:
        """Memory of one unit for two banks of fp32 sums."""
        return 2 * self.accumulator_tiles * self.tile**2 * 4 // self.scus_per_cluster

    @property
    def _hop_pj_per_byte(self) -> float:
        """A byte through a router and over a link as long as a cluster's side; the table is read by the controller."""
        return (router_pass_pj(self.link_bytes, groups=0) + link_pj(self.link_bytes, self._link_mm)) / self.link_bytes

    @property
    def _link_mm(self) -> float:
        """Side of a cluster: its MACs and its memories."""
        macs = self.scus_per_cluster * self.lanes * MAC_65NM_MM2.value
        units = self.scus_per_cluster * sram_mm2(self.technology_nm, self._accumulator_bytes)
        return sqrt(macs + units + self._cluster_memory_mm2)

    @property
    def _cluster_memory_mm2(self) -> float:
        """Queue and block store of a cluster."""
        return sum(sram_mm2(self.technology_nm, size) for size in (self._queue_bytes, self._block_store_bytes))

    def _sram_pj(self, size_bytes: int, write: bool = False) -> float:
        return sram_pj_per_byte(self.technology_nm, size_bytes, write)


def _output_tiles(product: TiledProduct) -> int:
    """Tiles of the output that are needed."""
    return product.parallel.tiles * product.serial.tiles if product.needed is None else int(product.needed.sum())
