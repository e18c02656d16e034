"""Sizes, widths and layouts of a fabric in gates, derived from the same shape that the simulator plays."""

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from amaranth.lib import data
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.lowering import FabricShape
from acf.sim.fabric import AdaptiveFabric

ROUND_BITS = 8  # rounds are told apart modulo 256
REASON_BITS = 3
FETCH_CYCLES = 4  # from a turn at the port to a row in the SCU's buffer


@dataclass(frozen=True)
class FabricSizes:
    """A shape that can be built, ``command_depth`` commands per controller, ``memory_flits`` flits behind each.

    ``products``: adders shift by multiplying, which saves LUTs on an FPGA; in gates, multiplexers are smaller.
    """

    shape: FabricShape
    command_depth: int = 512
    memory_flits: int = 4096
    products: bool = True

    def __post_init__(self) -> None:
        shape = self.shape
        rules = (
            (
                shape.tile_format == "bitmap" or shape.tile <= 16,
                f"tile_format 'csc' with tiles of {shape.tile} is the simulator's alone: a place of 5 bits may lie "
                "across two flits; build with bitmap, or with tiles of 16",
            ),
            (shape.skip != "gate", "skip 'gate' is the simulator's alone; build with both or serial"),
            (
                shape.skip != "both" or shape.lanes == 1,
                f"with skip 'both' the {shape.lanes} lanes of an SCU would need {shape.lanes} sums of any columns a "
                "cycle; build with 1 lane, or with skip 'serial'",
            ),
            (not shape.ideal_links, "a crossbar has ideal links, which cannot be built; use mesh or static"),
            (
                shape.tile % shape.scus_per_cluster == 0,
                f"scus_per_cluster {shape.scus_per_cluster} must divide the tile {shape.tile}; use a divisor",
            ),
            (_is_power(shape.lanes), f"lanes {shape.lanes} must be a power of two; use a power of two"),
            (
                _is_power(shape.link_bytes) and 2 * shape.tile <= shape.link_bytes <= 2 * shape.tile**2,
                f"link_bytes {shape.link_bytes} must be a power of two from a row of values, {2 * shape.tile}, to a "
                f"tile, {2 * shape.tile**2}; use such a width",
            ),
            (
                4 * shape.lanes <= shape.link_bytes,
                f"lanes {shape.lanes} make more sums a cycle than link_bytes {shape.link_bytes} carry; use fewer",
            ),
            (
                _is_power(shape.sum_adders) and shape.sum_adders >= shape.lanes,
                f"sum_adders {shape.sum_adders} must be a power of two and not fewer than the lanes {shape.lanes}, "
                "whose sums lie in one word; use such a number",
            ),
            (
                shape.accumulate_in == "banks" or shape.skip == "serial",
                f"accumulate_in 'registers' with skip {shape.skip!r} is the simulator's alone; build with serial",
            ),
            (
                shape.accumulate_in == "banks" or shape.held_rows == self.scu_rows,
                f"held_rows {shape.held_rows} is the simulator's alone; build with all {self.scu_rows} rows of an SCU",
            ),
            (shape.sram_cycles >= 3, f"sram_cycles {shape.sram_cycles} must be at least 3 to be built; give more"),
            (
                shape.mesh_columns == 1 or gcd(1 + shape.hop_cycles, shape.result_period_cycles) == 1,
                f"with hop_cycles {shape.hop_cycles} results of two clusters meet on the line of a mesh row; "
                "use a number of which one more shares no factor with mesh_columns",
            ),
        )
        for holds, message in rules:
            if not holds:
                raise RtlError(message)

    # Values and flits.
    @property
    def flit_values(self) -> int:
        """bf16 values of a flit."""
        return self.shape.link_bytes // 2

    @property
    def flit_bits(self) -> int:
        """Bits of a flit."""
        return 8 * self.shape.link_bytes

    @property
    def tile_values(self) -> int:
        """Values of a tile, and the bits of its bitmap."""
        return self.shape.tile**2

    @property
    def tile_flits(self) -> int:
        """The most flits of a tile: those of all its values."""
        return self.tile_values // self.flit_values

    @property
    def flit_number_bits(self) -> int:
        """Bits of the number of a flit within its tile."""
        return (self.tile_flits - 1).bit_length()

    @property
    def is_csc(self) -> bool:
        """Whether packed tiles are in CSC form (`acf.lowering.tile_format`), else with a bitmap."""
        return self.shape.tile_format == "csc"

    @property
    def head_values(self) -> int:
        """What lies before the values of a packed tile, its bitmap or the counts of its lines, in values of 16 bits."""
        return self.shape.tile // 2 if self.is_csc else self.tile_values // 16

    # SCUs.
    @property
    def scu_rows(self) -> int:
        """Rows of a tile that belong to one SCU."""
        return self.shape.tile // self.shape.scus_per_cluster

    @property
    def chunks(self) -> int:
        """Cycles of a full row of a block."""
        return self.shape.tile // self.shape.lanes

    @property
    def sum_words(self) -> int:
        """Words of ``lanes`` sums in one bank of an SCU."""
        return self.shape.accumulator_tiles * self.scu_rows * self.chunks

    @property
    def ports(self) -> int:
        """Read ports of a cluster, each with its own copy of the stores."""
        return -(-self.shape.scus_per_cluster // self.shape.scus_per_port)

    @property
    def skips_both(self) -> bool:
        """Whether zeros of a block take no time either."""
        return self.shape.skip == "both"

    @property
    def gates_units(self) -> bool:
        """Whether walkers, clusters and controllers without work stop their clocks."""
        return isinstance(self.shape, AdaptiveFabric) and self.shape.clock_gating == "units"

    @property
    def holds_sums(self) -> bool:
        """Whether an SCU holds a block, and the sums of the row that it walks, in registers."""
        return self.shape.accumulate_in == "registers"

    @property
    def counts_stalls(self) -> bool:
        """Whether every SCU counts its cycles by reason."""
        return self.shape.stall_counters == "all"

    @property
    def datapath_delay(self) -> int:
        """Cycles from the walker to the read of its sums: a turn at the port, the fetch, the load of value and row.

        An SCU that holds a block reads them while it loads the row, which comes a cycle before the value.
        """
        shared = self.shape.scus_per_port
        if not self.holds_sums:
            return shared + FETCH_CYCLES + 1
        return FETCH_CYCLES - 1 + (shared if shared > 1 else 0)

    # Layouts.
    @property
    def due_bits(self) -> int:
        """Bits of a wrapping counter of blocks, enough to compare blocks due with blocks arrived."""
        shape = self.shape
        most = 2 * (shape.parallel_slots + (shape.queue_packets + 1) * shape.accumulator_tiles)
        return most.bit_length() + 1

    @cached_property
    def header(self) -> data.StructLayout:
        """The header of a serial packet for one of its destinations."""
        tiles = self.shape.accumulator_tiles
        return data.StructLayout(
            {
                "blocks": tiles,  # bit per block of the k_step, in order of arrival: those it meets
                "sums": tiles,  # bit per tile of the bank: those that they add to, in the same order
                "count": bits_for(tiles),  # blocks of the k_step
                "edge_valid": 1,
                "edge": bits_for(tiles - 1),  # the block with fewer columns than a tile
                "round": ROUND_BITS,
                "last_of_k_step": 1,
                "last_of_round": 1,
                "tiles": bits_for(tiles),  # result tiles that leave after the round
            }
        )

    @cached_property
    def item(self) -> data.StructLayout:
        """A queued serial tile as one SCU sees it."""
        tiles = self.shape.accumulator_tiles
        edge = {} if self.skips_both else {"edge_valid": 1, "edge": bits_for(tiles - 1)}
        return data.StructLayout(
            {
                "blocks": tiles,
                "sums": tiles,
                "round": ROUND_BITS,
                **edge,
                "due": self.due_bits,  # blocks that must have arrived since the start, modulo
                "base": bits_for(self.shape.parallel_slots - 1),  # the slot of the k_step's first block
                "reason": REASON_BITS,
                "bitmap": self.scu_rows * self.shape.tile,
            }
        )

    @cached_property
    def operation(self) -> data.StructLayout:
        """One cycle of an SCU, in the pipeline from the walker to the adder.

        Where sums are held: ``first`` and ``last`` value of its row in this block, the row ``k`` of the block, and
        behind a port that SCUs share, whether that is to be loaded (``fresh``).
        """
        held = {"first": 1, "last": 1, "k": bits_for(self.shape.tile - 1)} if self.holds_sums else {}
        held |= {"fresh": 1} if self.holds_sums and self.shape.scus_per_port > 1 else {}
        return data.StructLayout({"valid": 1, "start": 1, "bank": 1, "address": bits_for(self.sum_words - 1), **held})

    @cached_property
    def request(self) -> data.StructLayout:
        """An SCU's request to its port: a value of a queued tile, and the row of a block at the same k.

        Where sums are held, the row of the block is read only if ``fresh``, and the port keeps the bitmaps of tile and
        block unless ``opens`` (the first value of a pair of tile and block).
        """
        shape = self.shape
        held = {"valid": 1, "fresh": 1, "opens": 1} if self.holds_sums else {}
        return data.StructLayout(
            {
                "place": bits_for(shape.queue_packets - 1),
                "row": bits_for(shape.tile - 1),
                "k": bits_for(shape.tile - 1),
                "slot": bits_for(shape.parallel_slots - 1),
                **held,
            }
        )

    @cached_property
    def fetched(self) -> data.StructLayout:
        """The port's answer; ``mask`` and ``packed`` tell the columns that the values of the row belong to.

        Where zeros of blocks are skipped, the row is rotated: it begins at place ``first`` and wraps around. Where sums
        are held, the row comes a cycle before the value.
        """
        tile = self.shape.tile
        return data.StructLayout(
            {
                "value": 16,
                "row": 16 * tile,
                "mask": tile,
                "packed": 1,
                "first": bits_for(tile - 1),
            }
        )

    def link(self, places: int, serial: bool) -> data.StructLayout:
        """A flit and its sideband signals on a line of ``places`` routers."""
        members = {
            "valid": 1,
            "last": 1,
            "parallel": 1,
            "packed": 1,
            "reason": REASON_BITS,
            "destinations": places,
            "data": self.flit_bits,
        }
        if serial:
            members["headers"] = places * self.header.size
        return data.StructLayout(members)

    @property
    def sum_values(self) -> int:
        """Partial sums that a cluster sends to the one below in a cycle: as many as there are adders."""
        shape = self.shape
        return min(shape.sum_adders, shape.scus_per_cluster * shape.lanes, shape.link_bytes // 4)

    @property
    def most_sum_flits(self) -> int:
        """Flits of a full bank of partial sums."""
        return self.shape.accumulator_tiles * self.tile_values * 4 // self.shape.link_bytes

    @property
    def most_sum_stride(self) -> int:
        """The most cycles from one flit of partial sums to the next."""
        return self.shape.sum_flit_cycles * self.shape.mesh_columns

    @property
    def most_sum_cycles(self) -> int:
        """The most cycles that partial sums of a column take."""
        return self.shape.hop_cycles * self.shape.mesh_rows + self.most_sum_flits * self.most_sum_stride

    def command(self, places: int, serial: bool) -> data.StructLayout:
        """A word of a controller's command memory."""
        members: dict[str, int] = {
            "parallel": 1,
            "packed": 1,
            "flits": bits_for(self.tile_flits),
            "address": bits_for(self.memory_flits - 1),
            "destinations": places,
        }
        if serial:
            members["headers"] = places * self.header.size
        else:
            members["sum_flits"] = bits_for(self.most_sum_flits)
            members["sum_stride"] = bits_for(self.most_sum_stride)
            members["sum_cycles"] = bits_for(self.most_sum_cycles)
        members["transposed"] = 1
        return data.StructLayout(members)


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0
