"""Registers behind AXI4-Lite: how a host starts the fabric, loads its commands and reads its counters."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.fabric.counters import COUNTER_BITS
from acf.rtl.fabric.sizes import FabricSizes
from acf.sim.fabric.traffic import REASONS

IDENTITY = 0x0ACF0001
ADDRESS_BITS = 10
STAGING = 0x200

REGISTERS: dict[str, tuple[int, str, str]] = {
    "identity": (0x00, "read", f"{IDENTITY:#010x}"),
    "control": (0x04, "read, write", "bit 0: run; bit 1: sums of columns are added (`reduces`)"),
    "status": (0x08, "read", "bit 0: all packets are sent and all results have left"),
    "cycles": (0x0C, "read", "cycles with `run` until the status was reached"),
    "edge_cycles": (0x10, "read, write", "cycles of a row of a narrow block, with skip 'serial'"),
    "load_line": (0x14, "read, write", "the controller that is loaded: mesh rows first, then mesh columns"),
    "load_address": (0x18, "read, write", "command word that is written next; counts up"),
    "load_command": (0x1C, "write", "any value: the staged words become a command"),
    "load_count": (0x20, "write", "number of commands of the line"),
    "counted_unit": (0x24, "read, write", "the unit whose counters are read"),
    **{
        reason: (0x28 + 4 * index, "read", f"cycles of that unit: {reason}")
        for index, reason in enumerate((*REASONS, "idle"))
    },
    "staging": (STAGING, "write", "words of a command, lowest first"),
}
"""Byte offset, access and meaning of every register, 32 bits each."""


class RegisterFile(Component):
    """An AXI4-Lite slave of 32 bits, one transaction at a time; answers OKAY, and zero where nothing is."""

    def __init__(self, sizes: FabricSizes, command_bits: int) -> None:
        self.sizes, self.command_bits = sizes, command_bits
        shape = sizes.shape
        lines = shape.mesh_rows + shape.mesh_columns
        super().__init__(
            {
                "awvalid": In(1),
                "awready": Out(1),
                "awaddr": In(ADDRESS_BITS),
                "wvalid": In(1),
                "wready": Out(1),
                "wdata": In(32),
                "bvalid": Out(1),
                "bready": In(1),
                "bresp": Out(2),
                "arvalid": In(1),
                "arready": Out(1),
                "araddr": In(ADDRESS_BITS),
                "rvalid": Out(1),
                "rready": In(1),
                "rdata": Out(32),
                "rresp": Out(2),
                "run": Out(1),
                "reduces": Out(1),
                "edge_cycles": Out(bits_for(sizes.chunks)),
                "load": Out(lines),
                "load_count": Out(lines),
                "load_address": Out(bits_for(sizes.command_depth)),
                "load_word": Out(command_bits),
                "counted_unit": Out(bits_for(shape.units - 1)),
                "is_done": In(1),
                **{reason: In(COUNTER_BITS) for reason in (*REASONS, "idle")},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A write takes address and data together; a read answers in the next cycle."""
        m = Module()
        writes, place = Signal(), Signal(ADDRESS_BITS)
        m.d.comb += [
            writes.eq(self.awvalid & self.wvalid & (~self.bvalid | self.bready)),
            self.awready.eq(writes),
            self.wready.eq(writes),
            place.eq(self.awaddr),
            self.arready.eq(~self.rvalid | self.rready),
        ]
        with m.If(writes):
            m.d.sync += self.bvalid.eq(1)
        with m.Elif(self.bready):
            m.d.sync += self.bvalid.eq(0)
        line, staged = (
            Signal(range(len(self.load))),
            [Signal(32, name=f"staged_{word}") for word in range(-(-self.command_bits // 32))],
        )
        cycles = self._count_cycles(m)
        self._write(m, writes, place, line, staged)
        m.d.comb += self.load_word.eq(Cat(*staged))
        self._read(m, line, cycles)
        return m

    def _count_cycles(self, m: Module) -> Signal:
        """Cycles of the program that runs, or ran last."""
        cycles, ran = Signal(32), Signal()
        m.d.sync += ran.eq(self.run)
        with m.If(self.run & ~ran):
            m.d.sync += cycles.eq(1)
        with m.Elif(self.run & ~self.is_done):
            m.d.sync += cycles.eq(cycles + 1)
        return cycles

    def _write(self, m: Module, writes: Signal, place: Signal, line: Signal, staged: list[Signal]) -> None:
        plain = {
            "control": Cat(self.run, self.reduces),
            "edge_cycles": self.edge_cycles,
            "load_line": line,
            "load_address": self.load_address,
            "counted_unit": self.counted_unit,
        }
        loads, counts = Signal(), Signal()
        m.d.comb += [
            loads.eq(writes & (place == REGISTERS["load_command"][0])),
            counts.eq(writes & (place == REGISTERS["load_count"][0])),
        ]
        # The strobes come a cycle after the write, when the address of a count is in its register.
        strobe, is_count, following = Signal(), Signal(), Signal.like(self.load_address)
        m.d.sync += [strobe.eq(loads | counts), is_count.eq(counts)]
        m.d.comb += following.eq(self.load_address + 1)
        for index in range(len(self.load)):
            chosen = strobe & (line == index)
            m.d.comb += [self.load[index].eq(chosen & ~is_count), self.load_count[index].eq(chosen & is_count)]
        with m.If(strobe & ~is_count):
            m.d.sync += self.load_address.eq(following)
        with m.If(counts):
            m.d.sync += self.load_address.eq(self.wdata)
        with m.If(writes):
            for name, register in plain.items():
                with m.If(place == REGISTERS[name][0]):
                    m.d.sync += register.eq(self.wdata)
            for word, register in enumerate(staged):
                with m.If(place == STAGING + 4 * word):
                    m.d.sync += register.eq(self.wdata)

    def _read(self, m: Module, line: Signal, cycles: Signal) -> None:
        values = {
            "identity": IDENTITY,
            "control": Cat(self.run, self.reduces),
            "status": self.is_done,
            "cycles": cycles,
            "edge_cycles": self.edge_cycles,
            "load_line": line,
            "load_address": self.load_address,
            "counted_unit": self.counted_unit,
            **{reason: getattr(self, reason) for reason in (*REASONS, "idle")},
        }
        words = [0] * 32
        for name, value in values.items():
            words[REGISTERS[name][0] // 4] = value
        with m.If(self.arvalid & self.arready):
            m.d.sync += [
                self.rvalid.eq(1),
                self.rdata.eq(Mux(self.araddr[7:] == 0, Array(words)[self.araddr[2:7]], 0)),
            ]
        with m.Elif(self.rready):
            m.d.sync += self.rvalid.eq(0)


def register_table() -> str:
    """The registers as a Markdown table."""
    lines = ["| offset | register | access | meaning |", "|---|---|---|---|"]
    lines += [f"| {offset:#05x} | {name} | {access} | {text} |" for name, (offset, access, text) in REGISTERS.items()]
    return "\n".join(lines)
