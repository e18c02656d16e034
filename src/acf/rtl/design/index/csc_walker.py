"""The walker of relative CSC (compressed sparse columns with skip counts): decodes positions, drops padding."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from acf.sparse.relative_csc import RelativeCsc


@dataclass(frozen=True)
class CscWalkerSpec:
    """Entries of a value of ``value_bits`` above a skip of ``skip_bits``; rows, columns, offsets of ``index_bits``."""

    skip_bits: int = 8
    value_bits: int = 16
    index_bits: int = 16

    @property
    def word_bits(self) -> int:
        """Bits of a word of the memory, which holds offsets and entries."""
        return max(self.index_bits, self.skip_bits + self.value_bits)


class RelativeCscWalker(Component):
    """Visits the entries of every column in order, one per cycle; padding takes its cycle and is not offered.

    ``start`` begins with ``columns`` columns. The memory answers one cycle after ``memory_address``; in it lie the
    starts of columns from ``starts_base`` and the entries from ``entries_base``. An entry leaves when ``valid`` and
    ``ready`` meet: ``column``, ``row`` and ``value``. A column costs two cycles beside one per entry.
    """

    def __init__(self, spec: CscWalkerSpec | None = None) -> None:
        self.spec = spec = spec or CscWalkerSpec()
        index = spec.index_bits
        super().__init__(
            {
                "start": In(1),
                "columns": In(index),
                "starts_base": In(index),
                "entries_base": In(index),
                "memory_address": Out(index),
                "memory_data": In(spec.word_bits),
                "ready": In(1),
                "valid": Out(1),
                "column": Out(index),
                "row": Out(index),
                "value": Out(spec.value_bits),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The address of the next cycle's entry is always issued ahead, so entries stream without a bubble."""
        m = Module()
        spec = self.spec
        place, end, reached = (Signal(spec.index_bits, name=name) for name in ("place", "end", "reached"))
        m.d.comb += [
            self.row.eq(reached + self.memory_data[: spec.skip_bits]),
            self.value.eq(self.memory_data[spec.skip_bits : spec.skip_bits + spec.value_bits]),
        ]
        with m.FSM(name="walk") as walk:
            with m.State("IDLE"):
                m.d.comb += self.memory_address.eq(self.starts_base)
                m.d.sync += self.column.eq(0)
                with m.If(self.start):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += place.eq(self.memory_data)
                m.d.comb += self.memory_address.eq(self.starts_base + 1)
                m.next = "COLUMN"
            with m.State("FETCH"):
                m.d.comb += self.memory_address.eq(self.starts_base + self.column + 1)
                m.next = "COLUMN"
            with m.State("COLUMN"):
                m.d.sync += [end.eq(self.memory_data), reached.eq(0)]
                m.d.comb += self.memory_address.eq(self.entries_base + place)
                m.next = "ENTRIES"
                with m.If(self.memory_data == place):
                    self._next_column(m)
            with m.State("ENTRIES"):
                passes = Signal()
                m.d.comb += [
                    self.valid.eq(self.value != 0),
                    passes.eq(self.ready | ~self.valid),
                    self.memory_address.eq(self.entries_base + place + passes),
                ]
                with m.If(passes):
                    m.d.sync += [place.eq(place + 1), reached.eq(self.row + 1)]
                    with m.If(place + 1 == end):
                        self._next_column(m)
            m.d.comb += self.busy.eq(~walk.ongoing("IDLE"))
        return m

    def _next_column(self, m: Module) -> None:
        m.d.sync += self.column.eq(self.column + 1)
        m.next = "FETCH"
        with m.If(self.column + 1 == self.columns):
            m.next = "IDLE"


@dataclass(frozen=True)
class Entry:
    """What leaves the walker for one entry."""

    column: int
    row: int
    value: int


def csc_memory(encoded: RelativeCsc, value_bits: Sequence[int], spec: CscWalkerSpec) -> list[int]:
    """Contents of the walker's memory: starts, then entries; ``value_bits`` are the bits of ``encoded.values``."""
    entries = [int(skip) | int(bits) << spec.skip_bits for skip, bits in zip(encoded.skips, value_bits, strict=True)]
    return [*encoded.starts.tolist(), *entries]


def csc_cycles(memory: Sequence[int], columns: int, spec: CscWalkerSpec, ready: Sequence[int]) -> list[Entry | None]:
    """What a walker that starts in cycle 0 offers in every cycle of ``ready``; the starts lie at 0, entries behind."""
    offered: list[Entry | None] = [None, None]  # IDLE, BEGIN
    entries = columns + 1
    for column in range(columns):
        offered += [None] * (1 if column == 0 else 2)  # COLUMN, and FETCH before it
        reached = 0
        for word in memory[entries + memory[column] : entries + memory[column + 1]]:
            row, value = reached + (word & (1 << spec.skip_bits) - 1), word >> spec.skip_bits
            reached = row + 1
            if value == 0:
                offered.append(None)
                continue
            while len(offered) < len(ready):
                offered.append(Entry(column, row, value))
                if ready[len(offered) - 1]:
                    break
    return (offered + [None] * len(ready))[: len(ready)]
