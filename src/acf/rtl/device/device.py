"""The fabric as a device: AXI4-Lite registers for a host, and AXI4 masters that read programs and write results."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out, connect

from acf.lowering import FabricShape
from acf.rtl.design.axi.signatures import axi4, axi4_lite
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.axi.writer import BurstWriter
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.top import Fabric
from acf.rtl.design.primitives.bits import all_of, any_of, count_ones
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.edges import Edges, SumSource
from acf.rtl.device.fetcher import Fetcher, Slots
from acf.rtl.device.registers import ADDRESS_BITS, RegisterFile
from acf.rtl.device.sequencer import Sequencer
from acf.rtl.device.vector.connect import VectorWork, check_vector, place_vector
from acf.rtl.device.walking import WalkerOption, Walking, place_walking
from acf.sim.fabric.memory_ports import lines_of_masters
from acf.sim.fabric.traffic import REASONS

DEVICE_FLITS = 1 << 22
"""Flits in memory that the commands of a line can address, in an emitted device."""


def device_sizes(shape: FabricShape, command_depth: int = 512, products: bool = True) -> FabricSizes:
    """The sizes of a fabric inside a device."""
    return FabricSizes(shape, command_depth, DEVICE_FLITS, products)


def bus_names(masters: int) -> list[str]:
    """Names of the AXI4 masters' ports."""
    return ["m_axi"] if masters == 1 else [f"m_axi_{master}" for master in range(masters)]


class Device(Component):
    """A `Fabric` whose programs and results lie in memory, and whose control and counters are registers.

    Registers are at ``s_axi`` (AXI4-Lite slave), memory at ``m_axi``, or at ``m_axi_0``, ``m_axi_1``, ... where
    ``axi`` has several masters; each serves lines of its own (`lines_of_masters`). ``interrupt_request`` is 1 while the
    device is done or stopped, if the host has enabled interrupts. With ``walker`` it also runs products from a
    descriptor: it walks their index and makes the commands itself. With ``vector``, a name of `PROGRAM_SETS`, it has
    a vector unit of these programs, which runs lists of vector descriptors beside the products.
    """

    def __init__(
        self,
        sizes: FabricSizes,
        axi: AxiSpec | None = None,
        walker: WalkerOption | None = None,
        vector: str | None = None,
    ) -> None:
        self.sizes, self.walker, self.vector = sizes, walker, vector
        self.axi = axi if axi is not None else AxiSpec(data_bits=min(256, sizes.flit_bits))
        Slots(sizes, self.axi)  # refuses a bus that does not fit
        if vector is not None:
            check_vector(sizes, self.axi, vector)
        self.groups = lines_of_masters(sizes.shape, self.axi.masters)
        super().__init__(
            {
                "s_axi": In(axi4_lite(ADDRESS_BITS)),
                **{name: Out(axi4(self.axi)) for name in bus_names(self.axi.masters)},
                "interrupt_request": Out(1),
            }
        )

    @property
    def buses(self) -> list[Any]:
        """The AXI4 masters' ports."""
        return [getattr(self, name) for name in bus_names(self.axi.masters)]

    def elaborate(self, platform: object) -> Module:
        """Registers, sequencer, fabric, edges; for every master a fetcher and a writer."""
        m, sizes, axi = Module(), self.sizes, self.axi
        m.submodules.sequencer = sequencer = Sequencer(sizes)
        fabric = place(m, "fabric", Fabric(sizes), "fabric", sequencer.reset)
        fetchers = [
            place(m, f"fetcher_{index}", Fetcher(sizes, axi, fabric.command_bits), "fetcher", sequencer.reset)
            for index in range(axi.masters)
        ]
        m.submodules.registers = registers = RegisterFile(sizes, fetchers[0].page_bits, axi.masters)
        forward(m, self.s_axi, registers.bus)
        walking = place_walking(m, self, registers, sequencer)
        work = place_vector(m, self, registers, sequencer, walking)
        m.d.comb += [
            fabric.reduces.eq(Mux(walking.active, walking.split_k, registers.reduces)),
            fabric.edge_cycles.eq(Mux(walking.active, walking.edge_cycles, registers.edge_cycles)),
            walking.takes.eq(fabric.takes),
        ]
        if fabric.counts:  # else the registers of the counters read 0
            m.d.comb += fabric.counted_scu.eq(registers.counted_scu)
            for name in (*REASONS, "idle"):
                m.d.comb += getattr(registers, name).eq(getattr(fabric, name))
        failed = [any_of([getattr(each, name) for each in fetchers]) for name in ("operand_failed", "command_failed")]
        m.d.comb += [
            self.interrupt_request.eq(registers.interrupt),
            sequencer.start.eq(work.start),
            sequencer.is_ready.eq(~walking.active | (walking.is_loaded & work.is_ready)),
            sequencer.stop.eq(registers.command_failed | registers.product_refused),
            registers.is_done.eq(sequencer.is_done & ~walking.busy & ~work.waits),
            registers.is_busy.eq(sequencer.is_busy | walking.busy | work.pending),
            registers.is_running.eq(sequencer.run | sequencer.flush),
            registers.is_stopped.eq(sequencer.is_stopped & ~walking.busy & ~work.waits),
            registers.operand_failed.eq(failed[0]),
            registers.command_failed.eq(failed[1] | walking.failed),
            registers.product_refused.eq(walking.is_refused | work.refused),
            registers.start_lost.eq(walking.loses),
            registers.is_full.eq(walking.is_full),
            registers.busy_cycles.eq(registers.is_busy),
            registers.read_beats.eq(
                count_ones(Cat(*(fetcher.beat_valid for fetcher in fetchers))) + walking.beat_valid + work.beat_valid
            ),
            fabric.run.eq(sequencer.run),
            fabric.refill.eq(1),
        ]
        for line in range(len(fabric.memories)):
            with m.If(sequencer.counts & (sequencer.place == line)):
                count = Mux(walking.active, (1 << COUNT_BITS) - 1, registers.counts[line])
                m.d.comb += [fabric.load_count[line].eq(1), fabric.load_address.eq(count)]
        for index, fetcher in enumerate(fetchers):
            m.d.comb += [fetcher.start.eq(sequencer.begins), fetcher.enable.eq(sequencer.run)]
            bus = work.reads_beside(m, self.buses[0]) if index == 0 else self.buses[index]
            self._feed(m, index, bus, fabric, fetcher, registers, walking)
        self._write_back(m, fabric, fetchers, registers, sequencer, walking, work)
        return m

    def _feed(
        self, m: Module, index: int, bus: Any, fabric: Any, fetcher: Any, registers: RegisterFile, walking: Walking
    ) -> None:
        """Connect the commands and packets of a master's lines."""
        if index == 0:
            walking.share_bus(m, bus, fetcher)
        else:
            forward(m, bus, fetcher.bus)
        walks = walking.active
        for place_in_master, line in enumerate(self.groups[index]):
            page = walking.operand_page(line, index)
            connect(m, fabric.memories[line], fetcher.memories[place_in_master])
            m.d.comb += [
                fabric.load[line].eq(Mux(walks, walking.load[line], fetcher.load[place_in_master])),
                fabric.load_words[line].eq(Mux(walks, walking.load_word(line), fetcher.load_word)),
                fetcher.takes[place_in_master].eq(fabric.takes[line]),
                fetcher.counts[place_in_master].eq(Mux(walks, 0, registers.counts[line])),
                fetcher.command_pages[place_in_master].eq(registers.command_pages[line]),
                fetcher.data_pages[place_in_master].eq(Mux(walks, page, registers.data_pages[line])),
            ]

    def _write_back(
        self,
        m: Module,
        fabric: Any,
        fetchers: list[Any],
        registers: RegisterFile,
        sequencer: Sequencer,
        walking: Walking,
        work: VectorWork,
    ) -> None:
        """A collector at every edge and a writer for those of a master; a line's streams lie a stride apart."""
        axi, sizes = self.axi, self.sizes
        edges = Edges(m, sizes, axi, fabric, sequencer, SumSource(registers, walking))
        is_walked = walking.is_done & fabric.is_quiet & edges.sums_are_out
        offset = Signal(fetchers[0].page_bits)
        m.d.sync += offset.eq(offset + Mux(walking.active, walking.result_pages, registers.result_stride))
        with m.If(~sequencer.counts):
            m.d.sync += offset.eq(0)
        writers = []
        for index, lines in enumerate(self.groups):
            burst = edges.collectors[0].burst
            senders = len(lines) + (work.senders if index == 0 else 0)
            writer = place(m, f"writer_{index}", BurstWriter(axi, senders, burst, sizes.flit_bits), "writer")
            forward(m, self.buses[index], writer.bus)
            if index == 0:
                work.write_through(m, writer, len(lines), sizes.flit_bits // axi.data_bits)
            for sender, line in enumerate(lines):
                collector = edges.collectors[line]
                first = Mux(walking.active, walking.first_page(line, index), registers.result_pages[line])
                page = (first + offset)[: len(offset)]
                m.d.comb += [
                    collector.set_address.eq(sequencer.counts & (sequencer.place < collector.streams)),
                    collector.set_stream.eq(sequencer.place),
                    collector.first_beat.eq(page << (axi.page_beats.bit_length() - 1)),
                    writer.offers[sender].eq(collector.offers),
                    writer.addresses[sender].eq(collector.address),
                    writer.words[sender].eq(collector.words),
                    writer.word[sender].eq(collector.word),
                    collector.granted.eq(writer.granted[sender]),
                    collector.next.eq(writer.next[sender]),
                ]
            writers.append(writer)
        m.d.comb += [
            sequencer.fabric_is_done.eq(Mux(walking.active, is_walked, fabric.is_done)),
            sequencer.results_are_out.eq(edges.are_empty),
            sequencer.bus_is_idle.eq(all_of([master.is_idle for master in (*fetchers, *writers)])),
            registers.write_failed.eq(any_of([writer.failed for writer in writers])),
            registers.overflowed.eq(edges.overflow),
            registers.written_beats.eq(count_ones(Cat(*(bus.wvalid & bus.wready for bus in self.buses)))),
            registers.held_cycles.eq(edges.hold),
        ]
