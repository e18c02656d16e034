"""The fabric as a device: AXI4-Lite registers for a host, and an AXI4 master that reads programs and writes results."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out, connect

from acf.lowering import FabricShape
from acf.rtl.design.axi.signatures import axi4, axi4_lite
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.axi.writer import BurstWriter
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.top import Fabric
from acf.rtl.design.primitives.bits import all_of, any_of
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.collector import ResultCollector
from acf.rtl.device.fetcher import Fetcher, Slots
from acf.rtl.device.registers import ADDRESS_BITS, RegisterFile
from acf.rtl.device.sequencer import Sequencer
from acf.rtl.device.walking import WalkerOption, Walking, place_walking
from acf.sim.fabric.traffic import REASONS

DEVICE_FLITS = 1 << 22
"""Flits in memory that the commands of a line can address, in an emitted device."""

SLACK = 8
"""Room of a collector, in flits of a stream, beyond those that can be in flight."""


def device_sizes(shape: FabricShape, command_depth: int = 512, products: bool = True) -> FabricSizes:
    """The sizes of a fabric inside a device."""
    return FabricSizes(shape, command_depth, DEVICE_FLITS, products)


class Device(Component):
    """A `Fabric` whose programs and results lie in memory, and whose control and counters are registers.

    Registers are at ``s_axi`` (AXI4-Lite slave), memory at ``m_axi`` (AXI4 master). ``interrupt_request`` is 1 while
    the device is done or stopped, if the host has enabled interrupts. With ``walker`` it also runs products from a
    descriptor: it walks their index and makes the commands itself.
    """

    def __init__(self, sizes: FabricSizes, axi: AxiSpec | None = None, walker: WalkerOption | None = None) -> None:
        self.sizes, self.walker = sizes, walker
        self.axi = axi if axi is not None else AxiSpec(data_bits=min(256, sizes.flit_bits))
        Slots(sizes, self.axi)  # refuses a bus that does not fit
        super().__init__(
            {
                "s_axi": In(axi4_lite(ADDRESS_BITS)),
                "m_axi": Out(axi4(self.axi)),
                "interrupt_request": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Registers, sequencer, fabric, fetcher, collectors, writer."""
        m, sizes, axi = Module(), self.sizes, self.axi
        m.submodules.sequencer = sequencer = Sequencer(sizes)
        fabric = place(m, "fabric", Fabric(sizes), "fabric", sequencer.reset)
        fetcher = place(m, "fetcher", Fetcher(sizes, axi, fabric.command_bits), "fetcher", sequencer.reset)
        m.submodules.registers = registers = RegisterFile(sizes, fetcher.page_bits)
        forward(m, self.s_axi, registers.bus)
        walking = place_walking(m, self, registers, sequencer)
        walking.share_bus(m, self.m_axi, fetcher.bus)
        m.d.comb += [
            fabric.reduces.eq(registers.reduces & ~registers.walks),
            fabric.edge_cycles.eq(Mux(registers.walks, walking.edge_cycles, registers.edge_cycles)),
            fabric.counted_scu.eq(registers.counted_scu),
        ]
        for name in (*REASONS, "idle"):
            m.d.comb += getattr(registers, name).eq(getattr(fabric, name))
        m.d.comb += [
            self.interrupt_request.eq(registers.interrupt),
            sequencer.start.eq(Mux(registers.walks, walking.is_loaded, registers.start)),
            sequencer.stop.eq(fetcher.command_failed | walking.failed),
            sequencer.fabric_is_done.eq(Mux(registers.walks, walking.is_done & fabric.is_quiet, fabric.is_done)),
            registers.is_done.eq(sequencer.is_done & ~walking.busy),
            registers.is_busy.eq(sequencer.is_busy | walking.busy),
            registers.is_running.eq(sequencer.run | sequencer.flush),
            registers.is_stopped.eq(sequencer.is_stopped & ~walking.busy),
            registers.operand_failed.eq(fetcher.operand_failed),
            registers.command_failed.eq(fetcher.command_failed | walking.failed),
            registers.read_beats.eq(fetcher.beat_valid | walking.beat_valid),
        ]
        self._feed(m, fabric, fetcher, registers, sequencer, walking)
        self._write_back(m, fabric, fetcher, registers, sequencer, walking)
        return m

    def _feed(
        self, m: Module, fabric: Any, fetcher: Any, registers: RegisterFile, sequencer: Sequencer, walking: Walking
    ) -> None:
        """Load the command counts of every line before the run; connect commands and packets."""
        m.d.comb += [
            fabric.run.eq(sequencer.run),
            fabric.refill.eq(1),
            fabric.load.eq(Mux(registers.walks, walking.load, fetcher.load)),
            fabric.load_word.eq(Mux(registers.walks, walking.load_word, fetcher.load_word)),
            walking.takes.eq(fabric.takes),
            fetcher.start.eq(sequencer.begins),
            fetcher.enable.eq(sequencer.run),
            fetcher.counts.eq(Mux(registers.walks, 0, registers.counts)),
            fetcher.command_pages.eq(registers.command_pages),
            fetcher.takes.eq(fabric.takes),
        ]
        for line, port in enumerate(fabric.memories):
            connect(m, port, fetcher.memories[line])
            with m.If(sequencer.counts & (sequencer.place == line)):
                count = Mux(registers.walks, (1 << COUNT_BITS) - 1, registers.counts[line])
                m.d.comb += [fabric.load_count[line].eq(1), fabric.load_address.eq(count)]
            page = walking.serial_page if line < self.sizes.shape.mesh_rows else walking.parallel_page
            m.d.comb += fetcher.data_pages[line].eq(Mux(registers.walks, page, registers.data_pages[line]))

    def _write_back(
        self, m: Module, fabric: Any, fetcher: Any, registers: RegisterFile, sequencer: Sequencer, walking: Walking
    ) -> None:
        """A collector at every edge and one writer for all; streams lie one stride apart in memory."""
        sizes, axi, shape = self.sizes, self.axi, self.sizes.shape
        collectors = self._collectors(m, fabric, sequencer)
        burst = collectors[0].burst
        writer = place(m, "writer", BurstWriter(axi, len(collectors), burst, sizes.flit_bits), "writer")
        forward(m, self.m_axi, writer.bus)
        page, first_beat = Signal(fetcher.page_bits), Signal(axi.beat_address_bits)
        m.d.comb += first_beat.eq(page << (axi.page_beats.bit_length() - 1))
        m.d.sync += page.eq(page + Mux(registers.walks, walking.result_pages, registers.result_pages))
        with m.If(~sequencer.counts):
            m.d.sync += page.eq(Mux(registers.walks, walking.result_page, registers.result_page))
        for edge, collector in enumerate(collectors):
            is_row = edge < shape.mesh_rows
            first = edge * shape.mesh_columns if is_row else edge - shape.mesh_rows
            mine = [sequencer.place == first + stream for stream in range(collector.streams)]
            m.d.comb += [
                collector.set_address.eq(sequencer.counts & any_of(mine)),
                collector.set_stream.eq(sequencer.place - first),
                collector.first_beat.eq(first_beat),
                collector.flush.eq(sequencer.flush),
                writer.offers[edge].eq(collector.offers),
                writer.addresses[edge].eq(collector.address),
                writer.words[edge].eq(collector.words),
                writer.word[edge].eq(collector.word),
                collector.granted.eq(writer.granted[edge]),
                collector.next.eq(writer.next[edge]),
                fabric.hold[edge].eq(collector.hold),
            ]
        m.d.comb += [
            sequencer.results_are_out.eq(all_of([collector.is_empty for collector in collectors])),
            sequencer.bus_is_idle.eq(fetcher.is_idle & writer.is_idle),
            registers.write_failed.eq(writer.failed),
            registers.overflowed.eq(any_of([collector.overflows for collector in collectors])),
            registers.written_beats.eq(self.m_axi.wvalid & self.m_axi.wready),
            registers.held_cycles.eq(any_of([collector.hold for collector in collectors])),
        ]

    def _collectors(self, m: Module, fabric: Any, sequencer: Sequencer) -> list[Any]:
        sizes, axi, shape = self.sizes, self.axi, self.sizes.shape
        late = sizes.datapath_delay + shape.result_flit_cycles + shape.hop_cycles * shape.mesh_columns
        sums_late = sizes.datapath_delay + shape.sum_flit_cycles + shape.hop_cycles * (shape.mesh_rows + 1)
        collectors = []
        for row in range(shape.mesh_rows):
            collector = ResultCollector(sizes, axi, shape.mesh_columns, late // shape.result_period_cycles + SLACK)
            place(m, f"row_{row}_collector", collector, "row_collector", sequencer.reset)
            m.d.comb += [
                collector.valid.eq(fabric.result_valid[row]),
                collector.stream.eq(fabric.result_column[row]),
                collector.flit.eq(fabric.result[row]),
            ]
            collectors.append(collector)
        for column in range(shape.mesh_columns):
            collector = ResultCollector(sizes, axi, 1, sums_late // shape.sum_flit_cycles + SLACK)
            place(m, f"column_{column}_collector", collector, "column_collector", sequencer.reset)
            m.d.comb += [collector.valid.eq(fabric.sum_valid[column]), collector.flit.eq(fabric.sum[column])]
            collectors.append(collector)
        return collectors
