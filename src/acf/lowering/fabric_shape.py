"""What a fabric offers to a program: how many units, how wide, how deep its queues."""

from dataclasses import dataclass, fields

from acf.errors import ArchitectureError

TILES = (8, 16, 32)
SKIP_MODES = ("both", "serial", "gate")
"""both: a zero of either operand takes no time; serial: one of the serial operand; gate: zeros save only energy."""

INTERCONNECTS = ("mesh", "static", "crossbar")
"""mesh: work is balanced anew for every topology; static: as if all blocks were present; crossbar: ideal links."""

TILE_FORMATS = ("bitmap", "csc")
"""How pieces travel, where that is shorter than all their values: a bit per value and the non-zeros; or the non-zeros
column by column, each with the distance from the one above it, and a count per column: shorter below one in eight."""

MAXIMUM_SIDE = 64  # destinations of a packet are the bits of one word
MAXIMUM_ACCUMULATOR_TILES = 32  # and so are the blocks that a serial packet meets in a cluster


@dataclass(frozen=True, kw_only=True)
class FabricShape:
    """``mesh_rows`` x ``mesh_columns`` clusters of ``scus_per_cluster`` SCUs with ``lanes`` MACs each.

    An operand is cut into ``tile`` x ``tile`` pieces. A cluster queues ``queue_packets`` pieces of the serial operand,
    keeps ``parallel_slots`` pieces of the parallel one, and owns ``accumulator_tiles`` pieces of the output in each of
    two banks; its units read ``store_ports`` rows of blocks in a cycle, and ``sum_adders`` add its partial sums to
    those that come down the column. A memory controller fetches up to ``prefetch_packets`` ahead, puts ``link_bytes``
    a cycle on its first link, and a flit takes ``hop_cycles`` from one router to the next; on-chip memory answers
    after ``sram_cycles``.
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
        )
        for name, choices in named:
            if getattr(self, name) not in choices:
                raise ArchitectureError(
                    f"{name} {getattr(self, name)!r} is not one of {', '.join(map(str, choices))}; use one of these"
                )
        if max(self.mesh_rows, self.mesh_columns) > MAXIMUM_SIDE:
            raise ArchitectureError(
                f"a mesh of {self.mesh_rows} x {self.mesh_columns} clusters has a side above {MAXIMUM_SIDE}; "
                "use more units per cluster or more lanes instead"
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
        if self.parallel_slots < self.accumulator_tiles:
            raise ArchitectureError(
                f"parallel_slots {self.parallel_slots} must be at least accumulator_tiles {self.accumulator_tiles}, "
                "or one step of the reduction does not fit; give more slots"
            )

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
        """Units of a cluster that share one read port of its stores, and so the fewest cycles for a row of a block."""
        shared = -(-self.scus_per_cluster // self.store_ports)
        return min(shared, self.tile // self.lanes)

    @property
    def result_flit_cycles(self) -> int:
        """Cycles in which the units of a cluster put together a flit of bf16 results, a word each in a cycle."""
        return -(-self.link_bytes // (2 * self.scus_per_cluster * self.lanes))

    @property
    def sum_flit_cycles(self) -> int:
        """The same for a flit of fp32 partial sums, each of which takes an adder for a cycle."""
        return -(-self.link_bytes // (4 * min(self.scus_per_cluster * self.lanes, self.sum_adders)))

    @property
    def result_period_cycles(self) -> int:
        """Cycles between two results flits of one cluster: the clusters of a row take turns on its line."""
        return max(self.mesh_columns, self.result_flit_cycles)

    @property
    def ideal_links(self) -> bool:
        """Whether links take no time and have no width."""
        return self.interconnect == "crossbar"

    def hops_cycles(self, distance: int) -> int:
        """Cycles of a flit from a memory controller to the router at ``distance`` (0: the nearest)."""
        return 0 if self.ideal_links else self.hop_cycles * (distance + 1)

    def flits(self, payload_bytes: int) -> int:
        """Flits of a packet."""
        return -(-payload_bytes // self.link_bytes)
