"""The queue of vector work: reads descriptors from memory and runs one after the other on the vector unit."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.rtl.design.axi.signatures import axi4_read
from acf.rtl.design.axi.spec import PAGE_BYTES, AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import all_of
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.primitives.wires import forward
from acf.rtl.design.vector.registry import PROGRAM_SETS
from acf.rtl.design.vector.unit import COUNT_BITS as VECTOR_BITS
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit
from acf.rtl.device.collector import burst_flits
from acf.rtl.device.topology.descriptor import PROGRAM
from acf.rtl.device.topology.unit import TopologySizes, TopologyUnit
from acf.rtl.device.vector.dataflow import drain, feed, load_constants
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES, OUTPUTS
from acf.rtl.device.vector.parts import DESCRIPTOR_TAG, INPUTS, TOPOLOGY_TAG, Components, Parts
from acf.rtl.device.vector.reads import COUNT_BITS, DescriptorFetcher, VectorReads
from acf.rtl.device.vector.streams import ADDRESS_BITS, InputStream, OutputStream
from acf.rtl.device.vector.traits import TRAITS

TURNED_OUTPUTS = 2
"""Outputs whose tiles can be transposed; the last one is for sums and for an optimizer's operands."""

TURNS = ("x_order", "y_order", "second_x_order", "turns_outputs")
"""Fields that are 0 where vectors are rows as they lie."""


def check_fabric(sizes: FabricSizes) -> None:
    """Refuse a fabric whose results are not rows of tiles, a flit each: a lane is a column of a tile."""
    shape = sizes.shape
    if shape.link_bytes != 2 * shape.tile:
        raise RtlError(
            f"link_bytes {shape.link_bytes} is not the {2 * shape.tile} bytes of a row of a tile, which the vector "
            "unit takes at a time; use that, or leave the vector unit out"
        )
    if shape.scus_per_cluster > 1 and shape.lanes < shape.tile:
        raise RtlError(
            f"{shape.scus_per_cluster} SCUs of {shape.lanes} lanes interleave the values of their rows as results "
            f"leave, and the vector unit takes whole rows; use {shape.tile} lanes or one SCU a cluster, or leave it out"
        )
    if DESCRIPTOR_BYTES % shape.link_bytes:
        raise RtlError(
            f"a flit of {shape.link_bytes} bytes does not divide a descriptor of {DESCRIPTOR_BYTES}; use tiles up to 32"
        )


class VectorQueue(Component):
    """``start`` begins a list of ``count`` descriptors at page ``page``; taken while ``busy`` is 0.

    ``done`` counts the descriptors whose results are in memory, since the reset; ``products_done``, an input, the
    products. ``writes_are_idle``: the writer has no burst in flight. ``failed``: a word could not be read, a start was
    not taken, or a descriptor cannot run; the last of these ends the list. ``works``: the lanes perform an operation.
    ``offers``, ``addresses`` (in flits), ``words``, ``word``, ``granted`` and ``next`` are those of senders of a
    `BurstWriter`. ``programs``: those of the unit, a name of `PROGRAM_SETS`; where they have passes of rows, streams
    can transpose tiles. With ``topology`` a list may also hold topology descriptors, and there is one sender more.
    """

    def __init__(
        self, sizes: FabricSizes, spec: AxiSpec, programs: str = "cnn", topology: TopologySizes | None = None
    ) -> None:
        check_fabric(sizes)
        self.sizes, self.spec, self.programs, self.topology = sizes, spec, programs, topology
        self.senders = OUTPUTS + (topology is not None)
        self.burst = burst_flits(sizes, spec)
        super().__init__(
            {
                "start": In(1),
                "page": In(spec.address_bits - (PAGE_BYTES - 1).bit_length()),
                "count": In(COUNT_BITS),
                "products_done": In(32),
                "writes_are_idle": In(1),
                "busy": Out(1),
                "failed": Out(1),
                "done": Out(32),
                "works": Out(1),
                "beat_valid": Out(1),
                "offers": Out(self.senders),
                "addresses": Out(data.ArrayLayout(ADDRESS_BITS, self.senders)),
                "words": Out(data.ArrayLayout(bits_for(self.burst), self.senders)),
                "word": Out(data.ArrayLayout(sizes.flit_bits, self.senders)),
                "granted": In(self.senders),
                "next": In(self.senders),
                "bus": Out(axi4_read(spec)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Reads, descriptors, the unit, and its streams."""
        m, flit_bits, turns = Module(), self.sizes.flit_bits, PROGRAM_SETS[self.programs].has_rows
        requesters = TOPOLOGY_TAG + (self.topology is not None)
        unit = VectorUnit(VectorSpec(self.sizes.shape.tile, self.programs))
        parts = Parts(
            Components(
                reads=place(m, "reads", VectorReads(self.spec, flit_bits, requesters), "vector_reads"),
                fetcher=place(m, "fetcher", DescriptorFetcher(self.spec, flit_bits), "vector_fetcher"),
                unit=place(m, "unit", unit, "vector_unit"),
                inputs=[place(m, f"input_{name}", InputStream(flit_bits, turns), "vector_input") for name in INPUTS],
                outputs=[self._output(m, number, turns and number < TURNED_OUTPUTS) for number in range(OUTPUTS)],
                traits=[TRAITS[key] for key in PROGRAM_SETS[self.programs].programs],
            )
        )
        forward(m, self, parts.reads, ["bus", "beat_valid"])
        m.d.comb += self.works.eq(parts.unit.works)
        self._fetch(m, parts)
        topology = self._place_topology(m, parts)
        self._control(m, parts, topology)
        load_constants(m, parts)
        feed(m, parts)
        drain(m, parts, self)
        return m

    def _output(self, m: Module, number: int, turns: bool) -> Any:
        stream = OutputStream(self.sizes.flit_bits, self.burst, turns)
        return place(m, f"output_{number}", stream, "turning_vector_output" if turns else "vector_output")

    def _fetch(self, m: Module, parts: Parts) -> None:
        """Requests and answers of the descriptor fetcher; it begins with the queue."""
        fetcher, reads = parts.fetcher, parts.reads
        m.d.comb += [
            fetcher.start.eq(self.start & ~self.busy),
            fetcher.page.eq(self.page),
            fetcher.count.eq(self.count),
            reads.wanted[DESCRIPTOR_TAG].eq(fetcher.wanted),
            reads.addresses[DESCRIPTOR_TAG].eq(fetcher.address),
            reads.flits[DESCRIPTOR_TAG].eq(fetcher.descriptor_flits),
            fetcher.granted.eq(reads.granted[DESCRIPTOR_TAG]),
            fetcher.flit_valid.eq(reads.flit_valid[DESCRIPTOR_TAG]),
            fetcher.flit.eq(reads.flit),
        ]

    def _place_topology(self, m: Module, parts: Parts) -> Any | None:
        """The topology unit, where there is one: a requester and a sender more."""
        if self.topology is None:
            return None
        unit = TopologyUnit(self.topology, self.sizes.shape.tile, self.sizes.flit_bits)
        place(m, "topology", unit, "topology_unit")
        reads = parts.reads
        m.d.comb += [
            unit.words.eq(parts.now),
            reads.wanted[TOPOLOGY_TAG].eq(unit.wanted),
            reads.addresses[TOPOLOGY_TAG].eq(unit.address),
            reads.flits[TOPOLOGY_TAG].eq(1),
            unit.granted.eq(reads.granted[TOPOLOGY_TAG]),
            unit.flit_valid.eq(reads.flit_valid[TOPOLOGY_TAG]),
            unit.flit.eq(reads.flit),
            self.offers[OUTPUTS].eq(unit.offers),
            self.addresses[OUTPUTS].eq(unit.to),
            self.words[OUTPUTS].eq(1),
            self.word[OUTPUTS].eq(unit.word),
            unit.granted_write.eq(self.granted[OUTPUTS]),
            unit.next.eq(self.next[OUTPUTS]),
        ]
        return unit

    def _control(self, m: Module, parts: Parts, topology: Any | None) -> None:
        """Wait for the descriptor's conditions, load its constants, run it, store its sums, see its results off."""
        fetcher, unit = parts.fetcher, parts.unit
        executed, may_begin, can_run, is_topology = Signal(32), Signal(), Signal(), Signal()
        following, words = parts.following, fetcher.words
        reached, vectors, has_turns = Signal(32), Signal(32), Signal()
        m.d.comb += [
            vectors.eq(following("vectors") * following("runs")),
            reached.eq(self.products_done - following("after_products")),
            may_begin.eq(~reached[31] & (~following("barrier") | (self.done == executed))),
            is_topology.eq((following("program") == PROGRAM) if topology is not None else 0),
            can_run.eq((following("program") < len(parts.traits)) & (vectors != 0) & (vectors < 1 << VECTOR_BITS)),
            has_turns.eq(Cat(*(following(name) for name in TURNS)).any()),
        ]
        is_queued = Array(Const(int(each.is_queued), 1) for each in parts.traits)[following("program")]
        with m.If(~is_queued):
            m.d.comb += can_run.eq(0)
        # Tiles are turned whole, by streams that can.
        cut = following("vectors")[: (self.sizes.shape.tile - 1).bit_length()].any()
        with m.If(has_turns & (cut if PROGRAM_SETS[self.programs].has_rows else 1)):
            m.d.comb += can_run.eq(0)
        with m.FSM() as control:
            with m.State("REST"), m.If(fetcher.start):
                m.next = "NEXT"
            with m.State("NEXT"):
                with m.If(fetcher.is_over):
                    m.next = "REST"
                with m.Elif(fetcher.valid & ~can_run & ~is_topology):
                    m.d.comb += self.failed.eq(1)
                    m.next = "ABANDON"
                with m.Elif(fetcher.valid & may_begin):
                    m.d.comb += fetcher.take.eq(1)
                    m.d.sync += parts.now.eq(words)
                    m.next = "BEGIN"
                    if topology is not None:
                        with m.If(is_topology):
                            m.next = "TOPOLOGY"
            with m.State("BEGIN"):
                m.d.comb += parts.begins.eq(1)
                m.next = "CONSTANTS"
            with m.State("CONSTANTS"), m.If(~parts.field("loads_constants") | parts.has_constants):
                m.d.comb += unit.start.eq(1)
                m.next = "RUN"
            with m.State("RUN"), m.If(~unit.busy & ~unit.out_valid):
                m.next = "SUMS"
            with m.State("SUMS"):
                m.d.comb += parts.ends.eq(1)
                with m.If(all_of([each.is_over for each in parts.outputs])):
                    m.d.sync += executed.eq(executed + 1)
                    m.next = "NEXT"
            self._update_topology(m, topology, executed)
            with m.State("ABANDON"), m.If(fetcher.is_idle):
                m.next = "REST"
            m.d.comb += self.busy.eq(~control.ongoing("REST") | (self.done != executed))
        with m.If(parts.reads.failed | (self.start & self.busy)):
            m.d.comb += self.failed.eq(1)
        # A burst that was handed over is in flight from the next cycle on.
        with m.If(self.writes_are_idle & all_of([each.is_over for each in parts.outputs])):
            m.d.sync += self.done.eq(executed)

    def _update_topology(self, m: Module, topology: Any | None, executed: Signal) -> None:
        """The states of a topology descriptor; one that fails ends the list."""
        if topology is None:
            return
        with m.State("TOPOLOGY"):
            m.d.comb += topology.start.eq(1)
            m.next = "UPDATE"
        with m.State("UPDATE"):
            with m.If(topology.failed):
                m.d.comb += self.failed.eq(1)
                m.next = "ABANDON"
            with m.Elif(~topology.busy):
                m.d.sync += executed.eq(executed + 1)
                m.next = "NEXT"
