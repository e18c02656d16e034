"""Registers behind AXI4-Lite: the host sets where a program lies, starts it and reads counters."""

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.axi.signatures import axi4_lite
from acf.rtl.design.fabric.controller import COUNT_BITS
from acf.rtl.design.fabric.counters import COUNTER_BITS
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.vector.reads import COUNT_BITS as VECTOR_COUNT_BITS
from acf.sim.fabric.traffic import REASONS

IDENTITY = 0x0ACF0003
ADDRESS_BITS = 8
ERRORS: dict[str, str] = {
    "operand_failed": "an operand could not be read: the program went on, its results are wrong",
    "command_failed": "a command could not be read: the program was stopped",
    "write_failed": "a result could not be written",
    "overflowed": "a result was lost in the device: a defect of the design",
    "product_refused": "the descriptor is of a product that the device cannot walk: the product was stopped",
    "start_lost": "a product was started while no walker was free: it was not taken",
    "vector_failed": "vector work could not be read, begun or run: its list was given up, or its results are wrong; "
    "cleared by the next list",
}
"""Bits of the register `error`, lowest first."""

COUNTS: dict[str, str] = {
    "read_beats": "beats read from memory since the start, by all masters",
    "written_beats": "beats written to memory since the start, by all masters",
    "held_cycles": "cycles since the start in which results had to wait for memory",
    "busy_cycles": "cycles since the start in which the device was busy, from the first request to the last result",
}
"""Counters of the device itself."""

_READ, _BOTH = "read", "read, write"
_ORDER: tuple[tuple[str, str, str], ...] = (
    ("identity", _READ, f"{IDENTITY:#010x}"),
    (
        "control",
        _BOTH,
        "bit 0: start (reads 0); bit 1: sums of columns are added (`reduces`); bit 2: interrupts; "
        "bit 3: walk the index of the descriptor at command_page of line 0 (`walks`)",
    ),
    (
        "status",
        _READ,
        "bit 0: done, all results are in memory; bit 1: busy; bit 2: stopped by an error; "
        "bit 3: no product can be started; bit 4: vector work is left",
    ),
    ("error", _READ, "; ".join(f"bit {bit}: {text}" for bit, text in enumerate(ERRORS.values()))),
    ("cycles", _READ, "cycles from the first fetch until the last result is in memory"),
    ("edge_cycles", _BOTH, "cycles of a row of a narrow block, with skip 'serial'"),
    ("column_groups", _BOTH, "groups of mesh columns whose partial sums are added in order (`split`); 1: none"),
    ("result_stride", _BOTH, "pages of 4096 bytes from one stream of a line's results to the next"),
    ("line", _BOTH, "the line that the next four registers are of: mesh rows first, then mesh columns"),
    ("commands", _BOTH, f"number of commands of the line, below 2^{COUNT_BITS}"),
    ("command_page", _BOTH, "page where its commands begin"),
    ("data_page", _BOTH, "page where its flits begin"),
    ("result_page", _BOTH, "page where the first stream of its results goes"),
    ("counted_scu", _BOTH, "the SCU whose counters are read"),
    *((reason, _READ, f"cycles of that SCU: {reason}") for reason in (*REASONS, "idle")),
    *((name, _READ, text) for name, text in COUNTS.items()),
    ("vector_page", _BOTH, "page where a list of vector descriptors begins"),
    ("vector_count", _BOTH, f"descriptors of the list, below 2^{VECTOR_COUNT_BITS}; writing it starts the list"),
    ("after_vectors", _BOTH, "a product that is started begins when so many descriptors are done since the reset"),
    ("vectors_done", _READ, "vector descriptors whose results are in memory, since the reset"),
    ("products_done", _READ, "products whose results are in memory, since the reset"),
    ("vector_cycles", _READ, "cycles since the list's start in which the vector unit's lanes worked"),
)

REGISTERS: dict[str, tuple[int, str, str]] = {
    name: (4 * index, access, text) for index, (name, access, text) in enumerate(_ORDER)
}
"""Byte offset, access and meaning of every register, 32 bits each."""

_LINE_REGISTERS = {
    "commands": "counts",
    "command_page": "command_pages",
    "data_page": "data_pages",
    "result_page": "result_pages",
}


class RegisterFile(Component):
    """An AXI4-Lite slave of 32 bits, one transaction each way at a time.

    A write of less than a word is answered SLVERR and does nothing; unmapped offsets read zero. ``interrupt`` is 1
    while the device is done or stopped, if the host has enabled interrupts. Errors and counters begin anew with a start
    while the device rests, and run on over products that are started while it is busy.
    """

    def __init__(self, sizes: FabricSizes, page_bits: int, masters: int = 1) -> None:
        self.sizes = sizes
        shape = sizes.shape
        lines = shape.mesh_rows + shape.mesh_columns
        pages = data.ArrayLayout(page_bits, lines)
        super().__init__(
            {
                "bus": In(axi4_lite(ADDRESS_BITS)),
                "start": Out(1),
                "reduces": Out(1),
                "walks": Out(1),
                "edge_cycles": Out(bits_for(sizes.chunks)),
                "column_groups": Out(bits_for(shape.mesh_columns)),
                "result_stride": Out(page_bits),
                "counts": Out(data.ArrayLayout(COUNT_BITS, lines)),
                "command_pages": Out(pages),
                "data_pages": Out(pages),
                "result_pages": Out(pages),
                "counted_scu": Out(bits_for(shape.scus - 1)),
                "vector_start": Out(1),
                "vector_page": Out(page_bits),
                "vector_count": Out(VECTOR_COUNT_BITS),
                "after_vectors": Out(32),
                "vectors_done": In(32),
                "products_done": In(32),
                "vector_works": In(1),
                "vector_is_busy": In(1),
                "is_done": In(1),
                "is_busy": In(1),
                "is_running": In(1),
                "is_stopped": In(1),
                "is_full": In(1),
                "interrupt": Out(1),
                **{name: In(1) for name in ERRORS},
                **{name: In(bits_for(masters)) for name in COUNTS},
                **{reason: In(COUNTER_BITS) for reason in (*REASONS, "idle")},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A write accepts address and data together; a read is answered in the next cycle."""
        m = Module()
        writes, is_whole = Signal(), Signal()
        m.d.comb += [
            is_whole.eq(self.bus.wstrb.all()),
            writes.eq(self.bus.awvalid & self.bus.wvalid & (~self.bus.bvalid | self.bus.bready)),
            self.bus.awready.eq(writes),
            self.bus.wready.eq(writes),
            self.bus.arready.eq(~self.bus.rvalid | self.bus.rready),
        ]
        with m.If(writes):
            m.d.sync += [self.bus.bvalid.eq(1), self.bus.bresp.eq(Mux(is_whole, 0, 0b10))]
        with m.Elif(self.bus.bready):
            m.d.sync += self.bus.bvalid.eq(0)
        registers = self._registers(m)
        self._write(m, writes & is_whole, registers)
        self._read(m, registers)
        return m

    def _registers(self, m: Module) -> dict[str, Any]:
        """The value that every register reads, by name; writable ones are signals or elements of an array."""
        line, interrupts = Signal(range(len(self.counts))), Signal()
        m.d.comb += self.interrupt.eq(interrupts & (self.is_done | self.is_stopped))
        errors = {name: Signal(name=f"seen_{name}") for name in ERRORS}
        counts = {name: Signal(32, name=f"count_{name}") for name in COUNTS}
        cycles, vector_cycles, begins = Signal(32), Signal(32), Signal()
        m.d.comb += begins.eq(self.start & ~self.is_busy)
        clears = dict.fromkeys(ERRORS, begins) | {"vector_failed": self.vector_start}
        m.d.sync += [
            *(seen.eq(~clears[name] & (seen | getattr(self, name))) for name, seen in errors.items()),
            vector_cycles.eq(Mux(self.vector_start, 0, vector_cycles + self.vector_works)),
            *(count.eq(Mux(begins, 0, count + getattr(self, name))) for name, count in counts.items()),
            cycles.eq(Mux(begins, 0, cycles + self.is_running)),
        ]
        return {
            "identity": IDENTITY,
            "control": Cat(Signal(name="no_start"), self.reduces, interrupts, self.walks),
            "status": Cat(self.is_done, self.is_busy, self.is_stopped, self.is_full, self.vector_is_busy),
            "error": Cat(*errors.values()),
            "cycles": cycles,
            "edge_cycles": self.edge_cycles,
            "column_groups": self.column_groups,
            "result_stride": self.result_stride,
            "line": line,
            **{name: Array(getattr(self, table))[line] for name, table in _LINE_REGISTERS.items()},
            "counted_scu": self.counted_scu,
            **{reason: getattr(self, reason) for reason in (*REASONS, "idle")},
            **counts,
            **{name: getattr(self, name) for name in ("vector_page", "vector_count", "after_vectors")},
            "vectors_done": self.vectors_done,
            "products_done": self.products_done,
            "vector_cycles": vector_cycles,
        }

    def _write(self, m: Module, writes: Any, registers: dict[str, Any]) -> None:
        place, value = self.bus.awaddr, self.bus.wdata
        m.d.sync += [
            self.start.eq(writes & (place == REGISTERS["control"][0]) & value[0]),
            self.vector_start.eq(writes & (place == REGISTERS["vector_count"][0])),
        ]
        with m.If(writes):
            for name, (offset, access, _) in REGISTERS.items():
                if access == _READ:
                    continue
                with m.If(place == offset):
                    if name == "control":
                        m.d.sync += registers[name][1:].eq(value[1:])
                    else:
                        m.d.sync += registers[name].eq(value)

    def _read(self, m: Module, registers: dict[str, Any]) -> None:
        words = [registers[name] for name in REGISTERS]
        words += [0] * ((1 << (ADDRESS_BITS - 2)) - len(words))
        with m.If(self.bus.arvalid & self.bus.arready):
            m.d.sync += [self.bus.rvalid.eq(1), self.bus.rdata.eq(Array(words)[self.bus.araddr[2:]])]
        with m.Elif(self.bus.rready):
            m.d.sync += self.bus.rvalid.eq(0)


def register_table() -> str:
    """The registers as a Markdown table."""
    lines = ["| offset | register | access | meaning |", "|---|---|---|---|"]
    lines += [f"| {offset:#05x} | {name} | {access} | {text} |" for name, (offset, access, text) in REGISTERS.items()]
    return "\n".join(lines)
