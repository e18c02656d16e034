"""Running a product from its descriptor: index memory and walking controller, as a device connects them."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import In

from acf.errors import RtlError
from acf.lowering.descriptor import FIELDS
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.index_controller import IndexController, IndexSizes
from acf.rtl.design.primitives.bits import all_of
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.device.index_memory import IndexMemory


@dataclass(frozen=True)
class WalkerOption:
    """The largest product of a device that walks: an index of ``index_words``, and the limits of `IndexSizes`."""

    index_words: int = 16384
    blocks: int = 4096
    column_tiles: int = 256
    depths: int = 64

    def check_bus(self, axi: AxiSpec) -> None:
        """Refuse several masters: the index names one place for the operands of all lines."""
        if axi.masters > 1:
            raise RtlError(
                f"a device that walks reads its operands through one master, not {axi.masters}; use masters=1, or "
                "leave walker out"
            )

    def sizes(self, fabric: FabricSizes) -> IndexSizes:
        """The limits of the controller."""
        return IndexSizes(fabric, self.blocks, self.column_tiles, self.depths)


class Walking:
    """What a device takes from the walker; of a device without one everything is 0, and a product to walk fails."""

    def __init__(self, sizes: FabricSizes, command_bits: int, page_bits: int) -> None:
        lines = sizes.shape.mesh_rows + sizes.shape.mesh_columns
        self.busy, self.is_loaded, self.is_done, self.failed = (
            Signal(name=f"walking_{name}") for name in ("busy", "is_loaded", "is_done", "failed")
        )
        self.beat_valid = Signal(name="walking_beat_valid")
        self.load, self.takes = Signal(lines, name="walking_load"), Signal(lines, name="walking_takes")
        self.load_word = Signal(command_bits, name="walking_load_word")
        self.serial_page, self.parallel_page, self.result_page, self.result_pages = (
            Signal(page_bits, name=f"walking_{name}")
            for name in ("serial_page", "parallel_page", "result_page", "result_pages")
        )
        self.edge_cycles = Signal(8, name="walking_edge_cycles")
        self.memory: IndexMemory | None = None
        self._shape = sizes.shape

    def first_page(self, line: int) -> Value:
        """The page of a line's first result stream; a mesh column has none."""
        row = line if line < self._shape.mesh_rows else 0
        return self.result_page + row * self._shape.mesh_columns * self.result_pages

    def share_bus(self, m: Module, outer: Any, fetcher: Any) -> None:
        """The read channels of the bus: the index memory's while it loads, else the fetcher's."""
        memory = self.memory
        for path, member, value in fetcher.signature.flatten(fetcher):
            name = str(path[0])
            there = getattr(outer, name)
            if member.flow == In:
                gated = name in ("arready", "rvalid")
                m.d.comb += value.eq(there & ~self.busy if gated else there)
                if memory is not None:
                    m.d.comb += getattr(memory.bus, name).eq(there & self.busy if gated else there)
            else:
                other = value if memory is None else getattr(memory.bus, name)
                m.d.comb += there.eq(Mux(self.busy, other, value))


def place_walking(m: Module, device: Any, registers: Any, sequencer: Any) -> Walking:
    """Add index memory and controller to a device that was built with a walker."""
    option: WalkerOption | None = device.walker
    sizes, page_bits = device.sizes, len(registers.result_stride)
    limits = (option or WalkerOption()).sizes(sizes)
    walking = Walking(sizes, limits.command_bits, page_bits)
    if option is None:
        m.d.sync += walking.is_loaded.eq(registers.start & registers.walks)
        m.d.comb += walking.failed.eq(registers.walks & sequencer.run)
        return walking
    walking.memory = memory = place(m, "index_memory", IndexMemory(device.axi, option.index_words), "index_memory")
    controller = place(m, "index_controller", IndexController(limits), "index_controller", sequencer.reset)
    was_busy, begun, unread = Signal(), Signal(), Signal()
    m.d.comb += [
        memory.start.eq(registers.start & registers.walks),
        memory.page.eq(registers.command_pages[0]),
        memory.read_address.eq(controller.memory_address),
        controller.memory_data.eq(memory.read_data),
        controller.start.eq(sequencer.run & ~begun & registers.walks),
        walking.busy.eq(memory.busy | memory.start | walking.is_loaded),
        walking.beat_valid.eq(memory.beat_valid),
        walking.failed.eq(registers.walks & sequencer.run & (unread | memory.is_refused | controller.is_refused)),
        walking.load_word.eq(controller.word),
    ]
    m.d.sync += [
        was_busy.eq(memory.busy),
        begun.eq(sequencer.run),
        unread.eq(~memory.start & (unread | memory.failed)),
    ]
    m.d.comb += walking.is_loaded.eq(was_busy & ~memory.busy)
    for name in ("serial_page", "parallel_page", "result_page", "result_pages", "edge_cycles"):
        at = FIELDS[name]
        m.d.comb += getattr(walking, name).eq(memory.descriptor[at.word][at.low : at.low + at.bits])
    _keep_room(m, walking, controller, sequencer, sizes)
    return walking


def _keep_room(m: Module, walking: Walking, controller: Any, sequencer: Any, sizes: FabricSizes) -> None:
    """Offer a line a command while its command memory has room; done once every command was taken."""
    lines = sizes.shape.mesh_rows + sizes.shape.mesh_columns
    empty, began = [], Signal()
    m.d.sync += began.eq(sequencer.run & (began | controller.busy))
    for line in range(lines):
        held = Signal(range(sizes.command_depth + 1), name=f"held_{line}")
        m.d.comb += [
            controller.ready[line].eq(held != sizes.command_depth),
            walking.load[line].eq(controller.valid & (controller.line == line) & controller.ready[line]),
        ]
        m.d.sync += held.eq(Mux(sequencer.run, held + walking.load[line] - walking.takes[line], 0))
        empty.append(held == 0)
    m.d.comb += walking.is_done.eq(began & ~controller.busy & all_of(empty))
