"""The queue of vector work: reads descriptors from memory and runs one after the other on the vector unit."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
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
from acf.rtl.design.vector.operation import CONSTANTS
from acf.rtl.design.vector.unit import COUNT_BITS as VECTOR_BITS
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit
from acf.rtl.device.collector import burst_flits
from acf.rtl.device.topology.descriptor import PROGRAM
from acf.rtl.device.topology.unit import TopologySizes, TopologyUnit
from acf.rtl.device.vector.descriptor import DESCRIPTOR_BYTES, FIELDS, OUTPUTS, WORDS
from acf.rtl.device.vector.reads import COUNT_BITS, DescriptorFetcher, VectorReads
from acf.rtl.device.vector.streams import ADDRESS_BITS, FLITS_BITS, InputStream, OutputStream
from acf.rtl.device.vector.traits import ALL_TRAITS

INPUTS = ("x", "y", "second_x")
_CONSTANTS_TAG, _DESCRIPTOR_TAG, _TOPOLOGY_TAG = (len(INPUTS) + number for number in range(3))


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
    `BurstWriter`. With ``topology`` a list may also hold topology descriptors, and there is one sender more.
    """

    def __init__(self, sizes: FabricSizes, spec: AxiSpec, topology: TopologySizes | None = None) -> None:
        check_fabric(sizes)
        self.sizes, self.spec, self.topology = sizes, spec, topology
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
        m, flit_bits = Module(), self.sizes.flit_bits
        requesters = _TOPOLOGY_TAG + (self.topology is not None)
        parts = _Parts(
            reads=place(m, "reads", VectorReads(self.spec, flit_bits, requesters), "vector_reads"),
            fetcher=place(m, "fetcher", DescriptorFetcher(self.spec, flit_bits), "vector_fetcher"),
            unit=place(m, "unit", VectorUnit(VectorSpec(self.sizes.shape.tile)), "vector_unit"),
            inputs=[place(m, f"input_{name}", InputStream(flit_bits), "vector_input") for name in INPUTS],
            outputs=[
                place(m, f"output_{number}", OutputStream(flit_bits, self.burst), "vector_output")
                for number in range(OUTPUTS)
            ],
        )
        forward(m, self, parts.reads, ["bus", "beat_valid"])
        m.d.comb += self.works.eq(parts.unit.works)
        self._fetch(m, parts)
        topology = self._place_topology(m, parts)
        self._control(m, parts, topology)
        self._load_constants(m, parts)
        self._feed(m, parts)
        self._drain(m, parts)
        return m

    def _fetch(self, m: Module, parts: "_Parts") -> None:
        """Requests and answers of the descriptor fetcher; it begins with the queue."""
        fetcher, reads = parts.fetcher, parts.reads
        m.d.comb += [
            fetcher.start.eq(self.start & ~self.busy),
            fetcher.page.eq(self.page),
            fetcher.count.eq(self.count),
            reads.wanted[_DESCRIPTOR_TAG].eq(fetcher.wanted),
            reads.addresses[_DESCRIPTOR_TAG].eq(fetcher.address),
            reads.flits[_DESCRIPTOR_TAG].eq(fetcher.descriptor_flits),
            fetcher.granted.eq(reads.granted[_DESCRIPTOR_TAG]),
            fetcher.flit_valid.eq(reads.flit_valid[_DESCRIPTOR_TAG]),
            fetcher.flit.eq(reads.flit),
        ]

    def _place_topology(self, m: Module, parts: "_Parts") -> Any | None:
        """The topology unit, where there is one: a requester and a sender more."""
        if self.topology is None:
            return None
        unit = TopologyUnit(self.topology, self.sizes.shape.tile, self.sizes.flit_bits)
        place(m, "topology", unit, "topology_unit")
        reads = parts.reads
        m.d.comb += [
            unit.words.eq(parts.now),
            reads.wanted[_TOPOLOGY_TAG].eq(unit.wanted),
            reads.addresses[_TOPOLOGY_TAG].eq(unit.address),
            reads.flits[_TOPOLOGY_TAG].eq(1),
            unit.granted.eq(reads.granted[_TOPOLOGY_TAG]),
            unit.flit_valid.eq(reads.flit_valid[_TOPOLOGY_TAG]),
            unit.flit.eq(reads.flit),
            self.offers[OUTPUTS].eq(unit.offers),
            self.addresses[OUTPUTS].eq(unit.to),
            self.words[OUTPUTS].eq(1),
            self.word[OUTPUTS].eq(unit.word),
            unit.granted_write.eq(self.granted[OUTPUTS]),
            unit.next.eq(self.next[OUTPUTS]),
        ]
        return unit

    def _control(self, m: Module, parts: "_Parts", topology: Any | None) -> None:
        """Wait for the descriptor's conditions, load its constants, run it, store its sums, see its results off."""
        fetcher, unit = parts.fetcher, parts.unit
        executed, may_begin, can_run, is_topology = Signal(32), Signal(), Signal(), Signal()
        following, words = parts.following, fetcher.words
        reached, vectors = Signal(32), Signal(32)
        m.d.comb += [
            vectors.eq(following("vectors") * following("runs")),
            reached.eq(self.products_done - following("after_products")),
            may_begin.eq(~reached[31] & (~following("barrier") | (self.done == executed))),
            is_topology.eq((following("program") == PROGRAM) if topology is not None else 0),
            can_run.eq((following("program") < len(ALL_TRAITS)) & (vectors != 0) & (vectors < 1 << VECTOR_BITS)),
        ]
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
                m.d.comb += parts.stores_sums.eq(parts.field("stores_sums"))
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

    def _load_constants(self, m: Module, parts: "_Parts") -> None:
        """Five vectors of two flits each, one request."""
        reads, unit, flit_valid = parts.reads, parts.unit, parts.reads.flit_valid[_CONSTANTS_TAG]
        wanted, number, half, is_second = Signal(), Signal(range(CONSTANTS + 1)), Signal.like(reads.flit), Signal()
        m.d.comb += [
            reads.wanted[_CONSTANTS_TAG].eq(wanted),
            reads.addresses[_CONSTANTS_TAG].eq(parts.field("constants")),
            reads.flits[_CONSTANTS_TAG].eq(2 * CONSTANTS),
            parts.has_constants.eq(number == CONSTANTS),
            unit.load_constant.eq(flit_valid & is_second),
            unit.constant.eq(number),
            parts.constants.eq(Cat(half, reads.flit)),
        ]
        with m.If(parts.begins):
            m.d.sync += [wanted.eq(parts.field("loads_constants")), number.eq(0)]
        with m.Elif(reads.granted[_CONSTANTS_TAG]):
            m.d.sync += wanted.eq(0)
        with m.If(flit_valid):
            m.d.sync += [half.eq(reads.flit), is_second.eq(~is_second), number.eq(number + is_second)]

    def _feed(self, m: Module, parts: "_Parts") -> None:
        """The input streams, and which of them the next operation takes from."""
        unit, reads = parts.unit, parts.reads
        reads_y, has_second = (
            _by_program(parts.field("program"), [getattr(each, name) for each in ALL_TRAITS], 1)
            for name in ("reads_y", "has_second_x")
        )
        wide = (parts.field("x_is_wide"), parts.field("y_is_wide"), Const(1, 1))
        used = (Const(1, 1), reads_y, has_second)
        skips = (parts.field("x_skip"), parts.field("y_skip"), Const(0, ADDRESS_BITS))
        for number, (name, stream) in enumerate(zip(INPUTS, parts.inputs, strict=True)):
            m.d.comb += [
                stream.start.eq(parts.begins),
                stream.address.eq(parts.field(name)),
                stream.run_flits.eq(Mux(wide[number], parts.field("vectors") << 1, parts.field("vectors"))),
                stream.runs.eq(Mux(used[number], parts.field("runs"), 0)),
                stream.skip.eq(skips[number]),
                stream.is_wide.eq(wide[number]),
                reads.wanted[number].eq(stream.wanted),
                reads.addresses[number].eq(stream.want_address),
                reads.flits[number].eq(stream.want_flits),
                stream.granted.eq(reads.granted[number]),
                stream.flit_valid.eq(reads.flit_valid[number]),
                stream.flit.eq(reads.flit),
            ]
        x, y, second = parts.inputs
        takes_second, loads = Signal(), unit.load_constant
        m.d.comb += [
            unit.program.eq(parts.field("program")),
            unit.vectors.eq(parts.field("vectors") * parts.field("runs")),
            unit.keeps_sums.eq(parts.field("keeps_sums")),
            unit.in_valid.eq(Mux(takes_second, second.valid, x.valid & (y.valid | ~reads_y))),
            x.take.eq(unit.in_ready & ~takes_second),
            y.take.eq(unit.in_ready & ~takes_second & reads_y),
            second.take.eq(unit.in_ready & takes_second),
            Value.cast(unit.x).eq(Mux(loads, parts.constants, Mux(takes_second, second.values, x.values))),
            Value.cast(unit.y).eq(y.values),
            unit.in_mask.eq(Cat(*(_is_positive(y.values[at : at + 32]) for at in range(0, len(y.values), 32)))),
        ]
        with m.If(unit.in_ready):
            m.d.sync += takes_second.eq(~takes_second & has_second)

    def _drain(self, m: Module, parts: "_Parts") -> None:
        """What the unit emits, or both sums, as flits to the output streams; and those to the writer."""
        unit, flit_bits = parts.unit, self.sizes.flit_bits
        program, half = parts.field("program"), Signal()
        emits = [emit for traits in ALL_TRAITS for emit in traits.emits]
        firsts = [sum(len(each.emits) for each in ALL_TRAITS[:number]) for number in range(len(ALL_TRAITS))]
        at, sums_at = Signal(range(len(emits))), Signal(range(5))
        first = _by_program(program, firsts, bits_for(len(emits) - 1))
        is_wide, is_last, output = (
            Array(Const(int(getattr(each, name)), 2) for each in emits)[at] for name in ("is_wide", "is_last", "output")
        )
        narrow = Cat(*(unit.out[lane][16:] for lane in range(len(unit.out))))
        wide, sums = Value.cast(unit.out), Cat(Value.cast(unit.first_sums), Value.cast(unit.second_sums))
        flit = Mux(is_wide[0], wide.word_select(half, flit_bits), narrow)
        ready = Array(each.ready for each in parts.outputs)[output]
        m.d.comb += unit.out_ready.eq(ready & (half | ~is_wide[0]))
        with m.If(parts.begins):
            m.d.sync += [at.eq(first), sums_at.eq(0)]
        with m.Elif(unit.out_valid & ready):
            m.d.sync += half.eq(is_wide[0] & ~half)
            with m.If(unit.out_ready):
                m.d.sync += at.eq(Mux(is_last[0], first, at + 1))
        pushes_sum = parts.stores_sums & (sums_at != 4)
        with m.If(pushes_sum & parts.outputs[0].ready):
            m.d.sync += sums_at.eq(sums_at + 1)
        for number, stream in enumerate(parts.outputs):
            flits = _by_program(program, [traits.vector_flits[number] for traits in ALL_TRAITS], 4)
            run_flits, runs = Signal(FLITS_BITS, name=f"run_flits_{number}"), Signal(16, name=f"runs_{number}")
            m.d.comb += [
                run_flits.eq(parts.field("vectors") * flits),
                runs.eq(Mux(flits == 0, 0, parts.field("runs"))),
                stream.start.eq(parts.begins),
                stream.address.eq(parts.field(f"output_{number}")),
                stream.run_flits.eq(run_flits),
                stream.runs.eq(runs),
                stream.skip.eq(parts.field("output_skip") if number == 0 else 0),
                stream.valid.eq(unit.out_valid & (output == number)),
                stream.flit.eq(flit),
                self.offers[number].eq(stream.offers),
                self.addresses[number].eq(stream.to),
                self.words[number].eq(stream.words),
                self.word[number].eq(stream.word),
                stream.granted.eq(self.granted[number]),
                stream.next.eq(self.next[number]),
            ]
        with m.If(parts.field("stores_sums")):
            first_output = parts.outputs[0]
            m.d.comb += [first_output.run_flits.eq(4), first_output.runs.eq(1)]
            m.d.comb += [first_output.valid.eq(pushes_sum), first_output.flit.eq(sums.word_select(sums_at, flit_bits))]


class _Parts:
    """The components of a queue, and the signals between its pieces; ``now`` is the descriptor that runs."""

    def __init__(self, reads: Any, fetcher: Any, unit: Any, inputs: list[Any], outputs: list[Any]) -> None:
        self.reads, self.fetcher, self.unit, self.inputs, self.outputs = reads, fetcher, unit, inputs, outputs
        self.now, self.begins, self.has_constants = Signal(32 * WORDS), Signal(), Signal()
        self.stores_sums, self.constants = Signal(), Signal(len(Value.cast(unit.x)))

    def field(self, name: str) -> Value:
        """A field of the descriptor that runs."""
        return _field(self.now, name)

    def following(self, name: str) -> Value:
        """A field of the next descriptor."""
        return _field(self.fetcher.words, name)


def _field(words: Value, name: str) -> Value:
    word, low, bits, _ = FIELDS[name]
    return words[32 * word + low : 32 * word + low + bits]


def _by_program(program: Value, values: list[Any], bits: int) -> Value:
    """The value of the program that runs."""
    return Array(Const(int(value), bits) for value in values)[program]


def _is_positive(bits: Value) -> Value:
    """Whether float32 bits are above zero; not those of NaN, nor of a subnormal."""
    is_nan = bits[23:31].all() & bits[:23].any()
    return ~bits[31] & bits[23:31].any() & ~is_nan
