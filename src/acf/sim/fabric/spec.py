"""The Adaptive Compute Fabric as an accelerator: what it is made of, and what each part takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar
from weakref import WeakKeyDictionary

from acf.cost.control import CONTROL_ENERGY
from acf.errors import ArchitectureError
from acf.lowering import BALANCERS, FabricShape, Gemm, Program
from acf.lowering.fabric_shape import SUM_BYTES, VALUE_BYTES
from acf.lowering.mapping import Mapping, choose_mapping
from acf.lowering.packing import lower_product
from acf.lowering.tiled_product import TiledProduct, tile_product
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.fabric import area
from acf.sim.fabric.batch import block_diagonal, group_size, groups, pattern
from acf.sim.fabric.index_traffic import index_traffic
from acf.sim.fabric.play import ENGINES, DramPort
from acf.sim.fabric.runner import MEMORY_MODELS, LoweredProduct
from acf.sim.fabric.storage import tensor_bytes
from acf.sim.fabric.timed_memory import timed_dram_spec
from acf.sim.memory import DramTraffic
from acf.trace import BitTensor

_LOWERED: WeakKeyDictionary[Gemm, tuple[tuple[int | str, ...], tuple[TiledProduct, Mapping, Program]]] = (
    WeakKeyDictionary()
)
"""Of every product that is still in use: the fields that its latest program was made for, and that program."""

CLOCK_GATING = ("none", "enables", "units")


@dataclass(frozen=True, kw_only=True)
class AdaptiveFabric(FabricShape, AcceleratorSpec):
    """A mesh of clusters of sparse compute units (SCUs), fed by index-aware memory controllers at its edges.

    A controller at the left of each mesh row sends tiles of the serial operand, one at the top of each mesh column
    tiles of the parallel operand; routers multicast a packet to the clusters that need it. An SCU takes a non-zero of
    its rows and multiplies it with ``lanes`` values per cycle of the matching row of a parallel tile.
    ``docs/fabric.md`` describes the machine in full.

    ``index_controllers`` walk the indices of products and make the packets' commands, each with descriptor, tables and
    an index buffer of its own. With one, as the gates have it, a product's packets wait until its index is set up. Of
    more, half share the mesh rows of the present product while the other half set up the next; the products of a batch
    are walked by all of them, each one product at a time.

    On-chip memory has banks of ``bank_bytes``. ``memory_model`` "timed" plays the addresses of both operands and of
    write-backs on `acf.sim.dram`, and a bank gives one flit per cycle; "rate" lets serial tiles come at the sustained
    rate, parallel tiles at once, and banks never conflict. A read from an idle DRAM takes ``dram_latency_s``.
    The topology is updated every ``topology_every_steps`` optimizer steps.
    ``engine`` "exact" steps every queue, router and DRAM channel in every cycle, slowly.

    Energy and area: ``control_energy`` "synthesised" charges control logic and clock by our own synthesis, "calibrated"
    the same brought to the published MAC (`acf.cost.control`), "none" published MACs, memories and links alone.
    ``clock_gating`` "enables" stops registers that are not loaded, "units" also whole units without work, "none" clocks
    all of them in every cycle. Memories of a cluster have banks of at most ``local_bank_bytes``.
    """

    kind: ClassVar[str] = "fabric"

    memory_model: str
    dram_latency_s: float
    bank_bytes: int
    index_controllers: int
    topology_every_steps: int
    engine: str
    control_energy: str
    clock_gating: str
    local_bank_bytes: int

    def __post_init__(self) -> None:
        FabricShape.__post_init__(self)
        AcceleratorSpec.__post_init__(self)
        self.require_65nm()
        if self.value_bytes != VALUE_BYTES:
            raise ArchitectureError(
                f"value_bytes {self.value_bytes}: packets carry bf16 values of {VALUE_BYTES} bytes; use {VALUE_BYTES}"
            )
        for name, choices in (
            ("balancer", BALANCERS),
            ("engine", ENGINES),
            ("memory_model", MEMORY_MODELS),
            ("control_energy", CONTROL_ENERGY),
            ("clock_gating", CLOCK_GATING),
        ):
            if getattr(self, name) not in choices:
                raise ArchitectureError(
                    f"{name} {getattr(self, name)!r} is not one of {', '.join(choices)}; use one of these names"
                )
        self._check_memory()

    def _check_memory(self) -> None:
        if self.interconnect == "packet" and self.memory_model != "timed":
            raise ArchitectureError(
                f'interconnect "packet" with memory_model {self.memory_model!r}: packets on a mesh are timed with '
                'their memory; use memory_model = "timed"'
            )
        if self.memory_model == "timed":
            timed_dram_spec(self.dram_kind, self.dram_pin_bytes_per_s)

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
            f"control {self.control_energy}, clock gating: {self.clock_gating}, sums in {self.accumulate_in}; "
            f"{self.vector_lanes} vector lanes for what is no product, overlapped with products; "
            f"blocks move every {self.topology_every_steps} steps.",
        )

    @property
    def walking_controllers(self) -> int:
        """Index controllers that share the mesh rows of a product; the others set up the next."""
        return max(1, self.index_controllers // 2)

    @property
    def queue_bytes(self) -> int:
        """Memory of one cluster for serial tiles."""
        return self.queue_packets * self.tile**2 * self.value_bytes

    @property
    def store_bytes(self) -> int:
        """Memory of one cluster for parallel tiles."""
        return self.parallel_slots * self.tile**2 * self.value_bytes

    @property
    def accumulator_bytes(self) -> int:
        """Memory of one SCU for the fp32 sums of both banks."""
        return 2 * self.accumulator_tiles * self.tile**2 * SUM_BYTES // self.scus_per_cluster

    @property
    def output_channels(self) -> int:
        """Output channels of a tile."""
        return self.tile

    @property
    def dram_port(self) -> DramPort:
        """DRAM as the controller of one mesh row sees it."""
        bytes_per_cycle = self.dram_sustained_bytes_per_s / self.clock_hz / self.mesh_rows
        return DramPort(bytes_per_cycle, ceil(self.dram_latency_s * self.clock_hz))

    @property
    def on_chip_banks(self) -> int:
        """Banks of the on-chip memory, at least one for each controller."""
        return max(self.mesh_rows + self.mesh_columns, self.on_chip_bytes // self.bank_bytes)

    def dram_cycles(self, dram_bytes: int) -> int:
        """A lower bound, at the pins' peak rate: the cycles of `count_with_traffic` include every wait for DRAM."""
        return ceil(dram_bytes / self.dram_pin_bytes_per_s * self.clock_hz)

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product whose operands are on chip."""
        return self.count_with_traffic(gemm, DramTraffic())

    def count_with_traffic(self, gemm: Gemm, traffic: DramTraffic) -> ComputeCount:
        """The same when ``traffic`` crosses the pins meanwhile."""
        return self.lowered(gemm).run(self, traffic)

    def lowered(self, gemm: Gemm) -> LoweredProduct:
        """One matrix product as the fabric runs it."""
        product, mapping, program = self._lowered(gemm)
        index = index_traffic(mapping, product, self, self.walking_controllers)
        return LoweredProduct(gemm, product, program, index)

    def _lowered(self, gemm: Gemm) -> tuple[TiledProduct, Mapping, Program]:
        """The last three stages of lowering; kept with the product while fabrics lower it alike."""
        key = (*self.program_key, self.index_controllers)
        kept = _LOWERED.get(gemm)
        if kept is None or kept[0] != key:
            shape = self.program_shape()
            product = tile_product(gemm, shape)
            mapping = choose_mapping(product, self)
            kept = _LOWERED[gemm] = key, (product, mapping, lower_product(product, shape, mapping))
        return kept[1]

    def control_cycles(self, product: TiledProduct, mapping: Mapping) -> int:
        """Cycles for which ``product`` keeps the index controllers, those that set up or those that walk.

        Half set up a product while the other half walk the one before; a lone controller does both in turn.
        """
        index = index_traffic(mapping, product, self, self.walking_controllers)
        if self.index_controllers == 1:
            return index.walk_cycles
        return max(index.set_up_cycles, index.walk_cycles - index.set_up_cycles)

    def stored_bytes(self, bits: BitTensor, role: str) -> int:
        """Bytes of a tensor in memory: weights as block-CSR with their index, others with the sizes of their tiles."""
        return tensor_bytes(self, bits, role, super().stored_bytes(bits, role))

    def count_batch(self, gemms: Iterable[Gemm], traffic: DramTraffic) -> ComputeCount:
        """Independent products of one shape, side by side on the fabric; groups that are alike are played once."""
        counts: dict[tuple[int | bytes, ...], ComputeCount] = {}
        total = ComputeCount(0, 0, 0)
        for group in groups(gemms, group_size(self.clusters)):
            key = pattern(group)
            if key not in counts:
                counts[key] = self._count_group(group, traffic.times(len(group)))
            total += counts[key]
        return total

    def _count_group(self, group: Sequence[Gemm], traffic: DramTraffic) -> ComputeCount:
        played = self.lowered_group(group).run(self, traffic)
        dense_macs = sum(gemm.dense_macs for gemm in group)
        return replace(played, dense_macs=dense_macs, other_cycles=0)  # no topology that could change

    def lowered_group(self, group: Sequence[Gemm]) -> LoweredProduct:
        """Products side by side; each has a descriptor and an index of its own, walked by the next free controller."""
        shape = self.program_shape()  # all controllers walk, whatever the mapping: it is chosen by work alone
        member = tile_product(group[0], shape)
        alone = index_traffic(choose_mapping(member, shape), member, self)
        index = alone.times(len(group), self.index_controllers)
        together = block_diagonal(group)
        product = tile_product(together, shape)
        return LoweredProduct(together, product, lower_product(product, shape), index)

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component."""
        return area.area_mm2(self)

    @property
    def leakage_w(self) -> float:
        """Watts that leak from the memories."""
        return area.leakage_w(self)
