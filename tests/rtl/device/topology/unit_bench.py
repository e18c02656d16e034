"""A topology unit before an ideal memory: reads follow after a fixed time, a flit to write leaves at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out
from numpy.typing import NDArray

from acf.rtl.device.topology.descriptor import NO_SLOT, TopologyDescriptor
from acf.rtl.device.topology.model import move_blocks
from acf.rtl.device.topology.unit import TopologySizes, TopologyUnit
from acf.rtl.tools.simulation import Simulation


class UnitBench(Component):
    """``content``: flits from 0 on; a read is answered ``read_cycles`` behind its request."""

    def __init__(self, unit: TopologyUnit, content: list[int], words: int, read_cycles: int) -> None:
        self.unit, self.content, self.words, self.read_cycles = unit, content, words, read_cycles
        written = {"writes": Out(1), "to": Out(len(unit.to)), "word": Out(unit.flit_bits)}
        super().__init__({"start": In(1), "busy": Out(1), "failed": Out(1), **written})

    def elaborate(self, platform: object) -> Module:
        m, unit = Module(), self.unit
        m.submodules.unit = unit
        m.submodules.content = content = Memory(shape=unit.flit_bits, depth=len(self.content), init=self.content)
        read = content.read_port(domain="comb")
        asked, granted = Signal(self.read_cycles), Signal()
        address = Signal.like(unit.address)
        m.d.comb += [
            unit.start.eq(self.start),
            unit.words.eq(self.words),
            self.busy.eq(unit.busy),
            self.failed.eq(unit.failed),
            unit.granted.eq(unit.wanted),
            read.addr.eq(address),
            unit.flit_valid.eq(asked[-1]),
            unit.flit.eq(read.data),
            unit.granted_write.eq(unit.offers),
            unit.next.eq(granted),
            self.writes.eq(unit.next),
            self.to.eq(unit.to),
            self.word.eq(unit.word),
        ]
        m.d.sync += [asked.eq((asked << 1) | unit.wanted), granted.eq(unit.offers)]
        with m.If(unit.wanted):
            m.d.sync += address.eq(unit.address)
        return m


@dataclass(frozen=True)
class SeenUpdate:
    """Cycles of an update in gates, whether it failed, and the topology that follows from the scores.

    ``written``: the last content of every flit that was written.
    """

    cycles: int
    failed: bool
    after: NDArray[np.bool_]
    written: Mapping[int, bytes]

    def words_from(self, flit: int) -> list[int]:
        """Words from a flit on, as far as flits were written one behind the other."""
        content = b""
        while flit in self.written:
            content += self.written[flit]
            flit += 1
        return np.frombuffer(content, dtype="<u4").tolist()


@dataclass(frozen=True)
class Group:
    """Mesh columns to which the output tiles of a split-K weight gradient are dealt out, and tiles of their banks."""

    columns: int
    accumulator_tiles: int


LIST_FLIT = 1 << 20
"""Where the bench has an update write the list of output tiles, or the mask."""


def run_update(
    present: NDArray[np.bool_],
    moves: int,
    tile: int,
    read_cycles: int,
    group: Group | None = None,
    two_moments: bool = False,
) -> SeenUpdate:
    """Run an update of a layer whose blocks have scores of a fixed seed; with ``group`` its gradient is split-K."""
    rows, columns = present.shape
    blocks = [(int(row), int(column)) for row, column in np.argwhere(present)]
    rng = np.random.default_rng(0)
    norms, gradients = (rng.permutation(count).astype(np.float32) + 1 for count in (len(blocks), present.size))
    lanes, flits = tile // 2, []
    table = {block: slot for slot, block in enumerate(blocks)}
    every = [(row, column) for row in range(rows) for column in range(columns)]
    flits += _flits([table.get(block, NO_SLOT) for block in every], lanes)
    places = {"table": 0, "norms": len(flits)}
    flits += [flit for score in norms for flit in _score(score, lanes)]
    places["gradient_norms"] = len(flits)
    flits += [flit for score in gradients for flit in _score(score, lanes)]
    nothing = dict.fromkeys(("gradients", "updates", "forward_index", "input_index"), 0)
    nothing |= dict.fromkeys(("weight", "master", "moments", "after_products"), 0)
    places |= {"mask": LIST_FLIT, "group_columns": group.columns if group else 0}
    descriptor = TopologyDescriptor(
        rows=rows,
        columns=columns,
        blocks=len(blocks),
        moves=moves,
        size=tile,
        two_moments=two_moments,
        **places,
        **nothing,
    )
    clusters = (4, group.accumulator_tiles) if group else (1, 1)
    unit = TopologyUnit(TopologySizes(rows, columns, len(blocks), moves, *clusters), tile, 32 * lanes)
    words = int.from_bytes(descriptor.content(), "little")
    cycles = 70 * present.size + 400 * moves + 1000
    seen = Simulation(UnitBench(unit, flits, words, read_cycles), "pysim").run({"start": np.arange(cycles) == 0})
    assert not seen["busy"][-1]
    scores, of_blocks = norms.view(np.uint32), gradients.view(np.uint32).reshape(present.shape)
    after = np.zeros_like(present)
    for block in move_blocks(blocks, (rows, columns), scores, of_blocks, moves):
        after[block] = True
    written = {int(seen["to"][at]): seen["word"][at].tobytes() for at in np.flatnonzero(seen["writes"])}
    return SeenUpdate(int(seen["busy"].sum()), bool(seen["failed"].any()), after, written)


def _score(score: float, lanes: int) -> list[int]:
    """Flits of a block's sums: those of squares come second; all of the score is in its first lane."""
    squares = np.zeros(2 * lanes, dtype=np.float32)
    squares[0] = score
    return [0, 0, *_flits(squares.view(np.uint32).tolist(), lanes)]


def _flits(words: list[int], lanes: int) -> list[int]:
    padded = words + [0] * (-len(words) % lanes)
    content = np.array(padded, dtype="<u4").tobytes()
    size = 4 * lanes
    return [int.from_bytes(content[at : at + size], "little") for at in range(0, len(content), size)]
