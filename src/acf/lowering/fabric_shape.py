"""The shape of a fabric: its clusters and SCUs, and the widths and depths that a program is made for."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from acf.errors import ArchitectureError

if TYPE_CHECKING:
    from acf.lowering.mapping import Mapping
    from acf.lowering.tiled_product import TiledProduct

TILES = (8, 16, 32)
SKIP_MODES = ("both", "serial", "gate")
"""both: zeros of either operand are skipped; serial: those of the streamed operand; gate: zeros save only energy."""

INTERCONNECTS = ("mesh", "static", "crossbar", "packet")
"""mesh: lines with one sender each, rebalanced for every topology; static: mapped as if all blocks were present;
crossbar: ideal links; packet: routers with queues and arbitration instead of lines (`acf.sim.mesh`)."""

TILE_FORMATS = ("bitmap", "csc")
"""How a tile travels where that is shorter than all its elements (`acf.lowering.tile_format`). bitmap: a bit per
element, and the non-zeros. csc: the non-zeros line by line, each with its place there, and a count per line; shorter
than the bitmap below a density of 1/8."""

ACCUMULATE_IN = ("banks", "registers")
"""banks: every MAC reads and writes its sum in an accumulator bank. registers: an SCU holds a block and the
sums of the row that it walks, and reads and writes the bank once per row and block."""

STALL_COUNTERS = ("all", "none")
"""Whether every SCU counts its cycles by reason."""

VALUE_BYTES = 2  # operands and results are bf16
SUM_BYTES = 4  # partial sums are fp32

MAXIMUM_SIDE = 64  # a packet's destinations are the bits of a 64-bit word
MAXIMUM_ACCUMULATOR_TILES = 32  # the parallel tiles a serial packet meets are bits of a 32-bit one
MAXIMUM_LINK_BYTES = max(TILES) ** 2 * SUM_BYTES  # a whole tile of partial sums: no packet has a longer payload


PROGRAM_FIELDS = (
    "mesh_rows",
    "mesh_columns",
    "scus_per_cluster",
    "lanes",
    "tile",
    "accumulator_tiles",
    "store_ports",
    "link_bytes",
    "skip",
    "tile_format",
    "interconnect",
    "balancer",
)
"""Fields of a `FabricShape` that a program depends on; the others are depths and delays that only its play meets."""


@dataclass(frozen=True, kw_only=True)
class FabricShape:
    """``mesh_rows`` x ``mesh_columns`` clusters of ``scus_per_cluster`` SCUs with ``lanes`` MACs each.

    Operands are cut into tiles of ``tile`` x ``tile`` elements. A cluster queues ``queue_packets`` serial tiles, stores
    ``parallel_slots`` parallel tiles, and accumulates ``accumulator_tiles`` output tiles in each of two banks (double
    buffering). Its SCUs read ``store_ports`` rows of parallel tiles in a cycle; ``sum_adders`` add its partial sums to
    those that come down the mesh column. A memory controller prefetches up to ``prefetch_packets`` packets and puts
    ``link_bytes`` a cycle on its first link; a flit takes ``hop_cycles`` from one router to the next. On-chip memory
    has a latency of ``sram_cycles``. With ``accumulate_in`` "registers" an SCU holds a parallel tile and the sums of
    the row that it walks; a row of a parallel tile that it has read serves ``held_rows`` of its rows.
    ``stall_counters`` "none" leaves out the performance counters of SCUs.
    """

    mesh_rows: int
    mesh_columns: int
    scus_per_cluster: int
    lanes: int
    tile: int
    queue_packets: int
    parallel_slots: int
    accumulator_tiles: int
    store_ports: int
    sum_adders: int
    prefetch_packets: int
    link_bytes: int
    hop_cycles: int
    sram_cycles: int
    skip: str
    tile_format: str
    interconnect: str
    balancer: str
    accumulate_in: str
    held_rows: int
    stall_counters: str

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int) and value < 1:
                raise ArchitectureError(f"{item.name} {value} must be at least 1; give a positive number")
        named = (
            ("tile", TILES),
            ("skip", SKIP_MODES),
            ("tile_format", TILE_FORMATS),
            ("interconnect", INTERCONNECTS),
            ("accumulate_in", ACCUMULATE_IN),
            ("stall_counters", STALL_COUNTERS),
        )
        for name, choices in named:
            if getattr(self, name) not in choices:
                raise ArchitectureError(
                    f"{name} {getattr(self, name)!r} is not one of {', '.join(map(str, choices))}; use one of these"
                )
        if max(self.mesh_rows, self.mesh_columns) > MAXIMUM_SIDE:
            raise ArchitectureError(
                f"a mesh of {self.mesh_rows} x {self.mesh_columns} clusters has a side above {MAXIMUM_SIDE}; "
                "use more SCUs per cluster or more lanes instead"
            )
        if self.tile % self.lanes:
            raise ArchitectureError(
                f"lanes {self.lanes} must divide the tile {self.tile}; use 1, 2, 4 or another divisor"
            )
        if self.accumulator_tiles > MAXIMUM_ACCUMULATOR_TILES:
            raise ArchitectureError(
                f"accumulator_tiles {self.accumulator_tiles} exceeds {MAXIMUM_ACCUMULATOR_TILES}, the tiles a packet "
                "can name; use fewer"
            )
        if self.link_bytes > MAXIMUM_LINK_BYTES:
            raise ArchitectureError(
                f"link_bytes {self.link_bytes} exceeds {MAXIMUM_LINK_BYTES}, the longest payload of a packet; use fewer"
            )
        if self.parallel_slots < self.accumulator_tiles:
            raise ArchitectureError(
                f"parallel_slots {self.parallel_slots} must be at least accumulator_tiles {self.accumulator_tiles}, "
                "or one k_step does not fit; give more slots"
            )
        self._check_held_rows()

    def _check_held_rows(self) -> None:
        if self.held_rows > 1 and self.accumulate_in == "banks":
            raise ArchitectureError(
                f"held_rows {self.held_rows} needs sums in registers; set accumulate_in to registers, or held_rows to 1"
            )
        if self.held_rows > 1 and (self.tile // self.scus_per_cluster) % self.held_rows:
            raise ArchitectureError(
                f"held_rows {self.held_rows} does not divide the {self.tile // self.scus_per_cluster} rows of a tile "
                f"that an SCU owns; use a divisor, or fewer scus_per_cluster than {self.scus_per_cluster}"
            )

    def program_shape(self) -> "FabricShape":
        """This shape with the `PROGRAM_FIELDS` alone: a stage of lowering that read another field would fail."""
        shape = object.__new__(FabricShape)
        vars(shape).update({name: getattr(self, name) for name in PROGRAM_FIELDS})
        return shape

    @property
    def program_key(self) -> tuple[int | str, ...]:
        """Equal for shapes on which a product has the same program."""
        return tuple(getattr(self, name) for name in PROGRAM_FIELDS)

    def control_cycles(self, product: "TiledProduct", mapping: "Mapping") -> int:
        """Cycles for which ``product`` keeps the index controllers under ``mapping``; 0: a bare shape has none."""
        return 0

    @property
    def clusters(self) -> int:
        """Clusters of the mesh."""
        return self.mesh_rows * self.mesh_columns

    @property
    def scus(self) -> int:
        """Sparse compute units of the fabric."""
        return self.clusters * self.scus_per_cluster

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle."""
        return self.scus * self.lanes

    @property
    def scus_per_port(self) -> int:
        """SCUs that share a read port of the cluster's tile store: the fewest cycles for a row of a parallel tile."""
        shared = -(-self.scus_per_cluster // self.store_ports)
        return min(shared, self.tile // self.lanes)

    @property
    def result_flit_cycles(self) -> int:
        """Cycles in which the SCUs of a cluster fill a flit with bf16 results, one word per lane and cycle."""
        return -(-self.link_bytes // (VALUE_BYTES * self.scus_per_cluster * self.lanes))

    @property
    def sum_flit_cycles(self) -> int:
        """Cycles in which a flit of fp32 partial sums is filled; each sum occupies an adder for a cycle."""
        return -(-self.link_bytes // (SUM_BYTES * min(self.scus_per_cluster * self.lanes, self.sum_adders)))

    @property
    def result_period_cycles(self) -> int:
        """Cycles between two result flits of one cluster: the clusters of a mesh row take turns on its line."""
        return max(self.mesh_columns, self.result_flit_cycles)

    @property
    def ideal_links(self) -> bool:
        """Whether links have no latency and unlimited bandwidth."""
        return self.interconnect == "crossbar"

    def flits(self, payload_bytes: int) -> int:
        """Flits of a packet with that payload."""
        return -(-payload_bytes // self.link_bytes)
