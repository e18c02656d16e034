"""A bounded FIFO, and the credit counter of a sender that fills it without a ready signal."""

from collections import deque

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

from acf.errors import RtlError


class BoundedFifo(Component):
    """A queue of ``depth`` words of ``width`` bits, oldest first.

    A word enters where ``write_valid`` meets ``write_ready`` (there is room, whatever is read in this cycle) and can be
    read from the next cycle on; it leaves where ``read_valid`` meets ``read_ready``. ``level`` is the number held. A
    sender with credits need not look at ``write_ready``: every read is a credit to it.
    """

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        if width < 1 or depth < 1:
            raise RtlError(f"a queue of {depth} words of {width} bits holds nothing; give it at least one of each")
        self.width, self.depth = width, depth
        super().__init__(
            {
                "write_valid": In(1),
                "write_data": In(width),
                "write_ready": Out(1),
                "read_ready": In(1),
                "read_valid": Out(1),
                "read_data": Out(width),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A ring in distributed memory with the places to read and to write next."""
        m = Module()
        m.submodules.ring = ring = Memory(shape=self.width, depth=max(2, self.depth), init=[])
        write = ring.write_port()
        read = ring.read_port(domain="comb")
        enters = Signal()
        leaves = Signal()
        m.d.comb += [
            self.write_ready.eq(self.level < self.depth),
            self.read_valid.eq(self.level > 0),
            self.read_data.eq(read.data),
            enters.eq(self.write_valid & self.write_ready),
            leaves.eq(self.read_valid & self.read_ready),
            write.en.eq(enters),
            write.data.eq(self.write_data),
        ]
        for port, moves in ((write, enters), (read, leaves)):
            place = Signal(range(max(2, self.depth)), name=f"{'write' if port is write else 'read'}_place")
            m.d.comb += port.addr.eq(place)
            with m.If(moves):
                m.d.sync += place.eq(Mux(place == self.depth - 1, 0, place + 1))
        m.d.sync += self.level.eq(self.level + enters - leaves)
        return m


class CreditCounter(Component):
    """The sender's side of credit-based flow control: a word may be sent while a credit is left.

    ``available`` is 1 while a credit is left; ``send`` uses one up, which counts only while ``available``, and
    ``credit`` gives one back. It begins with ``credits``, the depth of the queue.
    """

    def __init__(self, credits: int = 4) -> None:
        if credits < 1:
            raise RtlError(f"{credits} credits let nothing through; begin with the depth of the queue, at least 1")
        self.credits = credits
        super().__init__(
            {"send": In(1), "credit": In(1), "available": Out(1), "left": Out(range(credits + 1), init=credits)}
        )

    def elaborate(self, platform: object) -> Module:
        """One counter."""
        m = Module()
        m.d.comb += self.available.eq(self.left > 0)
        m.d.sync += self.left.eq(self.left - (self.send & self.available) + self.credit)
        return m


class FifoModel:
    """`BoundedFifo` cycle by cycle."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._words: deque[int] = deque()

    def step(self, write_valid: int, write_data: int, read_ready: int) -> dict[str, int]:
        """One cycle; gives the outputs of that cycle, ``read_data`` only where a word is held."""
        outputs = {
            "write_ready": int(len(self._words) < self.depth),
            "read_valid": int(bool(self._words)),
            "level": len(self._words),
        }
        if self._words:
            outputs["read_data"] = self._words[0]
        if outputs["read_valid"] and read_ready:
            self._words.popleft()
        if write_valid and outputs["write_ready"]:
            self._words.append(write_data)
        return outputs
