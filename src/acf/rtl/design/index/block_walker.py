"""The block-CSR walker: addresses of all elements of a block-sparse matrix, along rows or along columns.

Both orders read the same packed blocks: along columns the offsets, slots and indices are those of block-CSC and the
elements of a block are visited down its columns, so the transposed product needs no second copy of the data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out


@dataclass(frozen=True)
class WalkerSpec:
    """Blocks of ``block_height`` x ``block_width``; indices and offsets of ``index_bits``, addresses beside them."""

    block_height: int = 16
    block_width: int = 16
    index_bits: int = 16
    address_bits: int = 32

    @property
    def block_elements(self) -> int:
        """Elements of a block."""
        return self.block_height * self.block_width


class BlockWalker(Component):
    """Visits every element of every present block, line by line; a line is a block row, ``transposed`` a block column.

    ``start`` begins with ``lines`` lines. The index memory answers one cycle after ``memory_address``; in it lie the
    offsets of lines from ``offsets_base``, the slots in order of lines from ``slots_base``, and the block column (row,
    if transposed) of every slot from ``indices_base``: the tensors of `acf.sparse.BlockTopology`. An element leaves
    when ``valid`` and ``ready`` meet: ``address`` in the packed blocks, ``line`` and ``index`` of its block, ``first``
    and ``last`` of the block, ``line_last`` of the line. ``busy`` ends after the last. A block costs two cycles and a
    line two, beside one per element.
    """

    def __init__(self, spec: WalkerSpec | None = None) -> None:
        self.spec = spec = spec or WalkerSpec()
        index, address = spec.index_bits, spec.address_bits
        super().__init__(
            {
                "start": In(1),
                "transposed": In(1),
                "lines": In(index),
                "offsets_base": In(index),
                "slots_base": In(index),
                "indices_base": In(index),
                "memory_address": Out(index),
                "memory_data": In(index),
                "ready": In(1),
                "valid": Out(1),
                "line": Out(index),
                "index": Out(index),
                "address": Out(address),
                "first": Out(1),
                "last": Out(1),
                "line_last": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Offsets, then per block its slot and its index, then its elements."""
        m = Module()
        spec = self.spec
        place = Signal(spec.index_bits)
        end = Signal(spec.index_bits)
        slot = Signal(spec.index_bits)
        row = Signal(range(max(2, spec.block_height)))
        column = Signal(range(max(2, spec.block_width)))
        m.d.comb += [
            self.address.eq(slot * spec.block_elements + row * spec.block_width + column),
            self.first.eq((row == 0) & (column == 0)),
            self.last.eq((row == spec.block_height - 1) & (column == spec.block_width - 1)),
            self.line_last.eq(self.last & (place + 1 == end)),
        ]
        with m.FSM(name="walk") as walk:
            with m.State("IDLE"):
                m.d.comb += self.memory_address.eq(self.offsets_base)
                m.d.sync += self.line.eq(0)
                with m.If(self.start):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.sync += place.eq(self.memory_data)
                m.d.comb += self.memory_address.eq(self.offsets_base + 1)
                m.next = "LINE"
            with m.State("LINE"):
                m.d.sync += end.eq(self.memory_data)
                m.d.comb += self.memory_address.eq(self.slots_base + place)
                m.next = "SLOT"
                with m.If(self.memory_data == place):
                    self._next_line(m)
            with m.State("FETCH"):
                m.d.comb += self.memory_address.eq(self.offsets_base + self.line + 1)
                m.next = "LINE"
            with m.State("SLOT"):
                m.d.sync += [slot.eq(self.memory_data), row.eq(0), column.eq(0)]
                m.d.comb += self.memory_address.eq(self.indices_base + self.memory_data)
                m.next = "INDEX"
            with m.State("INDEX"):
                m.d.sync += self.index.eq(self.memory_data)
                m.next = "ELEMENTS"
            with m.State("ELEMENTS"):
                m.d.comb += [self.valid.eq(1), self.memory_address.eq(self.slots_base + place + 1)]
                with m.If(self.ready):
                    self._next_element(m, row, column)
                    with m.If(self.last):
                        m.d.sync += place.eq(place + 1)
                        m.next = "SLOT"
                        with m.If(self.line_last):
                            self._next_line(m)
            m.d.comb += self.busy.eq(~walk.ongoing("IDLE"))
        return m

    def _next_line(self, m: Module) -> None:
        m.d.sync += self.line.eq(self.line + 1)
        m.next = "FETCH"
        with m.If(self.line + 1 == self.lines):
            m.next = "IDLE"

    def _next_element(self, m: Module, row: Signal, column: Signal) -> None:
        last_row, last_column = row == self.spec.block_height - 1, column == self.spec.block_width - 1
        with m.If(Mux(self.transposed, last_row, Const(1))):
            m.d.sync += column.eq(Mux(last_column, 0, column + 1))
        with m.If(Mux(self.transposed, Const(1), last_column)):
            m.d.sync += row.eq(Mux(last_row, 0, row + 1))


@dataclass(frozen=True)
class Element:
    """What leaves a walker for one element."""

    line: int
    index: int
    address: int
    first: bool
    last: bool
    line_last: bool


def walk_blocks(
    offsets: Sequence[int], slots: Sequence[int], indices: Sequence[int], spec: WalkerSpec, transposed: bool
) -> Iterator[Element]:
    """All elements in the walker's order."""
    height, width = spec.block_height, spec.block_width
    for line in range(len(offsets) - 1):
        for place in range(offsets[line], offsets[line + 1]):
            slot = slots[place]
            for step in range(height * width):
                row, column = (step % height, step // height) if transposed else divmod(step, width)
                last = step == height * width - 1
                yield Element(
                    line=line,
                    index=indices[slot],
                    address=slot * height * width + row * width + column,
                    first=step == 0,
                    last=last,
                    line_last=last and place + 1 == offsets[line + 1],
                )


def walker_cycles(
    offsets: Sequence[int],
    slots: Sequence[int],
    indices: Sequence[int],
    spec: WalkerSpec,
    transposed: bool,
    ready: Sequence[int],
) -> list[Element | None]:
    """What a walker that starts in cycle 0 offers in every cycle of ``ready``; None while it fetches or has ended."""
    elements = walk_blocks(offsets, slots, indices, spec, transposed)
    timeline = _Timeline(ready)
    timeline.wait(2)  # IDLE, BEGIN
    for line in range(len(offsets) - 1):
        timeline.wait(1 if line == 0 else 2)  # LINE, and FETCH before it
        for _ in range(offsets[line], offsets[line + 1]):
            timeline.wait(2)  # SLOT, INDEX
            for _ in range(spec.block_elements):
                timeline.offer(next(elements))
    return timeline.finish()


class _Timeline:
    """What is offered cycle by cycle; an element stays until it is taken."""

    def __init__(self, ready: Sequence[int]) -> None:
        self._ready, self._offered = ready, list[Element | None]()

    def wait(self, cycles: int) -> None:
        self._offered += [None] * cycles

    def offer(self, element: Element) -> None:
        while len(self._offered) < len(self._ready):
            self._offered.append(element)
            if self._ready[len(self._offered) - 1]:
                return

    def finish(self) -> list[Element | None]:
        rest = len(self._ready) - len(self._offered)
        return (self._offered + [None] * rest)[: len(self._ready)]
