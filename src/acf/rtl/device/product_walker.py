"""Index controllers with their index memory: they load a product, set it up, and wait until commands are taken."""

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.index.index_controller import IndexSizes
from acf.rtl.design.index.sharing_controllers import SharingControllers
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.index_memory import WORD_BITS, IndexMemory


class ProductWalker(Component):
    """``start`` takes the product whose descriptor is at page ``page``; ``is_free`` until then and after ``release``.

    The controllers set the product up as soon as its index ``is_loaded``. Each offers commands as `IndexController`
    does: ``valid`` tells the lines that one is for, ``words`` has that of every controller; ``gaps``: it is for the
    adder behind the line alone. ``is_finished``: every command was taken. ``failed`` (memory answered with an error)
    and ``is_refused`` hold until ``release``, which also abandons a product; one that is being loaded leaves when its
    last beat is there. While ``waits``, an index that is to be read fresh is not read.
    """

    def __init__(self, axi: AxiSpec, sizes: IndexSizes, index_words: int) -> None:
        self.axi, self.sizes, self.index_words = axi, sizes, index_words
        shape = sizes.fabric.shape
        lines = shape.mesh_rows + shape.mesh_columns
        super().__init__(
            {
                "start": In(1),
                "page": In(axi.page_bits),
                "release": In(1),
                "waits": In(1),
                "is_free": Out(1),
                "is_loaded": Out(1),
                "is_finished": Out(1),
                "failed": Out(1),
                "is_refused": Out(1),
                "beat_valid": Out(1),
                "descriptor": Out(data.ArrayLayout(WORD_BITS, DESCRIPTOR_WORDS)),
                "ready": In(lines),
                "valid": Out(lines),
                "gaps": Out(lines),
                "words": Out(data.ArrayLayout(sizes.command_bits, sizes.sharing)),
                "bus": Out(axi4_read(axi)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Free, loading, walking, then finished or bad."""
        m, memory = Module(), IndexMemory(self.axi, self.index_words, self.sizes.sharing)
        controllers, abandons = SharingControllers(self.sizes), Signal()
        m.submodules.memory, m.submodules.controllers = memory, ResetInserter(abandons)(controllers)
        forward(m, self, memory, ["bus", "descriptor", "beat_valid"])
        forward(m, self, controllers, ["ready", "valid", "gaps", "words"])
        page, unread, leaves = Signal.like(self.page), Signal(), Signal()
        m.d.comb += [
            memory.page.eq(page),
            memory.waits.eq(self.waits),
            memory.gives_up.eq(leaves | self.release),
            memory.read_address.eq(controllers.memory_address),
            controllers.memory_data.eq(memory.read_data),
        ]
        with m.FSM() as state:
            with m.State("FREE"):
                m.d.sync += [page.eq(self.page), unread.eq(0), leaves.eq(0)]
                with m.If(self.start):
                    m.d.comb += memory.start.eq(1)
                    m.next = "LOADING"
            with m.State("LOADING"):
                m.d.sync += [unread.eq(unread | memory.failed), leaves.eq(leaves | self.release)]
                with m.If(~memory.busy):
                    m.next = "BAD"
                    with m.If(leaves | self.release):
                        m.next = "FREE"
                    with m.Elif(~unread & ~memory.is_refused):
                        m.d.comb += controllers.start.eq(1)
                        m.next = "WALKING"
            with m.State("WALKING"):
                with m.If(~controllers.busy):
                    m.next = "FINISHED"
                    with m.If(controllers.is_refused):
                        m.next = "BAD"
                with m.If(self.release):
                    m.next = "FREE"
            with m.State("FINISHED"), m.If(self.release):
                m.next = "FREE"
            with m.State("BAD"):
                m.d.comb += [self.failed.eq(unread), self.is_refused.eq(~unread)]
                with m.If(self.release):
                    m.next = "FREE"
            m.d.comb += [
                self.is_free.eq(state.ongoing("FREE")),
                self.is_finished.eq(state.ongoing("FINISHED")),
                self.is_loaded.eq(~state.ongoing("FREE") & ~state.ongoing("LOADING")),
                abandons.eq(self.release & self.is_loaded),
            ]
        return m
