"""The vector queue as a device connects it: beside the fetcher at the bus, and beside the collectors at the writer."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value

from acf.errors import RtlError
from acf.lowering.descriptor import FIELDS as DESCRIPTOR_FIELDS
from acf.rtl.design.axi.read_mux import ReadMux
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.design.vector.unit import VectorSpec
from acf.rtl.device.vector.queue import VectorQueue, check_fabric
from acf.rtl.device.walking import Walking


def check_vector(sizes: FabricSizes, axi: AxiSpec, programs: str) -> None:
    """Refuse unknown programs, several masters, whose memories a descriptor cannot tell apart, and some fabrics."""
    VectorSpec(sizes.shape.tile, programs)
    if axi.masters > 1:
        raise RtlError(
            f"the vector unit reads and writes through one master, not {axi.masters}; use masters=1, or leave it out"
        )
    check_fabric(sizes)


class VectorWork:
    """What a device takes from its vector queue; a device without one refuses a list of descriptors.

    ``start`` starts a product. One that the host commands does so once the vector descriptors that it waits for are
    done; ``waits``: it still does, from the cycle in which it is asked for; ``pending``: from the next cycle on. One
    that is walked waits in the sequencer's reset until ``is_ready``, or is ``refused`` where there is no vector unit.
    """

    def __init__(self, queue: Any | None, mux: Any | None) -> None:
        self.queue, self._mux = queue, mux
        self.start, self.waits, self.pending = (
            Signal(name=f"product_{name}") for name in ("start", "waits", "pending")
        )
        self.is_ready, self.refused = Signal(name="vectors_are_ready"), Signal(name="vectors_are_missing")
        self.beat_valid: Value = queue.beat_valid if queue is not None else Signal(name="no_vector_beat")

    @property
    def senders(self) -> int:
        """How many senders the writer of the first master has besides its collectors."""
        return int(self.queue.senders) if self.queue is not None else 0

    def reads_beside(self, m: Module, bus: Any) -> Any:
        """The read channels of ``bus`` for the fetcher; the queue takes turns with it."""
        if self._mux is None:
            return bus
        forward(m, bus, self._mux.bus)
        assert self.queue is not None
        forward(m, self._mux.second, self.queue.bus)
        return self._mux.first

    def write_through(self, m: Module, writer: Any, first: int, flit_beats: int) -> None:
        """Connect the queue's results to the senders of ``writer`` from number ``first`` on."""
        queue = self.queue
        if queue is None:
            return
        m.d.comb += queue.writes_are_idle.eq(writer.is_idle)
        for number in range(self.senders):
            m.d.comb += [
                writer.offers[first + number].eq(queue.offers[number]),
                writer.addresses[first + number].eq(queue.addresses[number] * flit_beats),
                writer.words[first + number].eq(queue.words[number]),
                writer.word[first + number].eq(queue.word[number]),
                queue.granted[number].eq(writer.granted[first + number]),
                queue.next[number].eq(writer.next[first + number]),
            ]


def place_vector(m: Module, device: Any, registers: Any, sequencer: Any, walking: Walking) -> VectorWork:
    """Add the vector queue to a device that was built with one; ``walking`` starts products."""
    if device.vector is None:
        work = VectorWork(None, None)
        m.d.comb += [
            work.start.eq(walking.start_product),
            work.is_ready.eq(1),
            work.refused.eq(walking.active & sequencer.run & (walking.after_vectors != 0)),
        ]
        m.d.sync += registers.vector_failed.eq(registers.vector_start)
        return work
    topology = None if device.walker is None else device.walker.topology(device.sizes.shape)
    queue = place(m, "vector_queue", VectorQueue(device.sizes, device.axi, device.vector, topology), "vector_queue")
    work = VectorWork(queue, place(m, "read_mux", ReadMux(device.axi), "read_mux"))
    was_done = Signal()
    lacks, lacks_walked = (
        _lacks(m, queue.done, wanted, name)
        for wanted, name in ((registers.after_vectors, "lacks"), (walking.after_vectors, "lacks_walked"))
    )
    for number, walker in enumerate(walking.walkers):
        wanted = walker.descriptor[DESCRIPTOR_FIELDS["after_vectors"].word]
        m.d.comb += walker.waits.eq(_lacks(m, queue.done, wanted, f"index_waits_{number}"))
    m.d.comb += [
        work.waits.eq((walking.start_product & ~walking.start) | work.pending),
        work.start.eq(walking.start | (work.waits & ~lacks)),
        work.is_ready.eq(~walking.active | walking.is_bad | ~lacks_walked),
        walking.holds.eq(work.pending),
        queue.start.eq(registers.vector_start),
        queue.page.eq(registers.vector_page),
        queue.count.eq(registers.vector_count),
        queue.products_done.eq(registers.products_done),
        registers.vectors_done.eq(queue.done),
        registers.vector_is_busy.eq(queue.busy),
        registers.vector_works.eq(queue.works),
    ]
    m.d.sync += [
        work.pending.eq(work.waits & lacks),
        was_done.eq(sequencer.is_done),
        registers.vector_failed.eq(queue.failed),
        registers.products_done.eq(
            Mux(sequencer.is_done & ~was_done, registers.products_done + 1, registers.products_done)
        ),
    ]
    return work


def _lacks(m: Module, done: Value, wanted: Value, name: str) -> Signal:
    """Whether fewer descriptors are done than wanted; both count modulo 2^32."""
    ahead = Signal(32, name=f"{name}_by")
    lacks = Signal(name=name)
    m.d.comb += [ahead.eq(done - wanted), lacks.eq(ahead[31])]
    return lacks
