"""The way of values through a vector queue: constants, the input streams, and what the unit emits."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import bits_for

from acf.rtl.design.vector.operation import CONSTANTS
from acf.rtl.device.vector.descriptor import ORDERS
from acf.rtl.device.vector.parts import CONSTANTS_TAG, INPUTS, Parts
from acf.rtl.device.vector.streams import FLITS_BITS

SUM_FLITS = 4
"""Flits of both sums: two vectors of float32."""


def load_constants(m: Module, parts: Parts) -> None:
    """Five vectors of two flits each, one request."""
    reads, unit, flit_valid = parts.reads, parts.unit, parts.reads.flit_valid[CONSTANTS_TAG]
    wanted, number, half, is_second = Signal(), Signal(range(CONSTANTS + 1)), Signal.like(reads.flit), Signal()
    m.d.comb += [
        reads.wanted[CONSTANTS_TAG].eq(wanted),
        reads.addresses[CONSTANTS_TAG].eq(parts.field("constants")),
        reads.flits[CONSTANTS_TAG].eq(2 * CONSTANTS),
        parts.has_constants.eq(number == CONSTANTS),
        unit.load_constant.eq(flit_valid & is_second),
        unit.constant.eq(number),
        parts.constants.eq(Cat(half, reads.flit)),
    ]
    with m.If(parts.begins):
        m.d.sync += [wanted.eq(parts.field("loads_constants")), number.eq(0)]
    with m.Elif(reads.granted[CONSTANTS_TAG]):
        m.d.sync += wanted.eq(0)
    with m.If(flit_valid):
        m.d.sync += [half.eq(reads.flit), is_second.eq(~is_second), number.eq(number + is_second)]


def feed(m: Module, parts: Parts) -> None:
    """The input streams, and which of them the next operation takes from."""
    unit, traits = parts.unit, parts.traits
    reads_y = parts.by_program([each.reads_y for each in traits], 1)
    last = parts.by_program([len(each.from_second) - 1 for each in traits], 2)
    seconds = parts.by_program([sum(bit << at for at, bit in enumerate(each.from_second)) for each in traits], 4)
    for number in range(len(INPUTS)):
        _request(m, parts, number, parts.by_program([each.stream_takes[number] for each in traits], 2))
    x, y, second = parts.inputs
    taken, takes_second, takes_y, loads = Signal(2), Signal(), Signal(), unit.load_constant
    m.d.comb += [
        takes_second.eq(seconds.bit_select(taken, 1)),
        takes_y.eq(reads_y & (taken == 0)),
        unit.program.eq(parts.field("program")),
        unit.vectors.eq(parts.field("vectors") * parts.field("runs")),
        unit.keeps_sums.eq(parts.field("keeps_sums")),
        unit.in_valid.eq(Mux(takes_second, second.valid, x.valid & (y.valid | ~takes_y))),
        x.take.eq(unit.in_ready & ~takes_second),
        y.take.eq(unit.in_ready & takes_y),
        second.take.eq(unit.in_ready & takes_second),
        Value.cast(unit.x).eq(Mux(loads, parts.constants, Mux(takes_second, second.values, x.values))),
        Value.cast(unit.y).eq(y.values),
        unit.in_mask.eq(Cat(*(_is_positive(y.values[at : at + 32]) for at in range(0, len(y.values), 32)))),
    ]
    with m.If(unit.in_ready):
        m.d.sync += taken.eq(Mux(taken == last, 0, taken + 1))


def _request(m: Module, parts: Parts, number: int, takes: Value) -> None:
    """What stream ``number`` reads, of which every vector takes so many vectors; and its way to memory."""
    name, stream, reads = INPUTS[number], parts.inputs[number], parts.reads
    is_wide, order = parts.field(f"{name}_is_wide"), parts.field(f"{name}_order")
    vectors, side_bits = Signal(FLITS_BITS, name=f"{name}_vectors"), (parts.unit.lanes - 1).bit_length()
    m.d.comb += [
        vectors.eq(parts.field("vectors") * takes),
        stream.start.eq(parts.begins),
        stream.address.eq(parts.field(name)),
        stream.run_flits.eq(Mux(order == ORDERS["spread"], vectors >> side_bits, Mux(is_wide, vectors << 1, vectors))),
        stream.runs.eq(Mux(takes != 0, parts.field("runs"), 0)),
        stream.skip.eq(parts.field(f"{name}_skip")),
        stream.is_wide.eq(is_wide),
        stream.order.eq(order),
        reads.wanted[number].eq(stream.wanted),
        reads.addresses[number].eq(stream.want_address),
        reads.flits[number].eq(stream.want_flits),
        stream.granted.eq(reads.granted[number]),
        stream.flit_valid.eq(reads.flit_valid[number]),
        stream.flit.eq(reads.flit),
    ]


def drain(m: Module, parts: Parts, queue: Any) -> None:
    """What the unit emits as flits to the output streams, both sums to the last one; and those to the writer."""
    unit, flit_bits, half = parts.unit, queue.sizes.flit_bits, Signal()
    emits = [emit for traits in parts.traits for emit in traits.emits]
    firsts = [sum(len(each.emits) for each in parts.traits[:number]) for number in range(len(parts.traits))]
    at = Signal(range(len(emits)))
    first = parts.by_program(firsts, bits_for(len(emits) - 1))
    is_wide, is_last, output = (
        Array(Const(int(getattr(each, name)), 2) for each in emits)[at] for name in ("is_wide", "is_last", "output")
    )
    narrow = Cat(*(unit.out[lane][16:] for lane in range(len(unit.out))))
    flit = Mux(is_wide[0], Value.cast(unit.out).word_select(half, flit_bits), narrow)
    ready = Array(each.ready for each in parts.outputs)[output]
    m.d.comb += unit.out_ready.eq(ready & (half | ~is_wide[0]))
    with m.If(parts.begins):
        m.d.sync += at.eq(first)
    with m.Elif(unit.out_valid & ready):
        m.d.sync += half.eq(is_wide[0] & ~half)
        with m.If(unit.out_ready):
            m.d.sync += at.eq(Mux(is_last[0], first, at + 1))
    for number, stream in enumerate(parts.outputs):
        m.d.comb += [stream.valid.eq(unit.out_valid & (output == number)), stream.flit.eq(flit)]
        _write(m, parts, queue, number)
    _store_sums(m, parts, flit_bits)


def _write(m: Module, parts: Parts, queue: Any, number: int) -> None:
    """Where stream ``number`` writes."""
    stream, flits = parts.outputs[number], parts.by_program([each.vector_flits[number] for each in parts.traits], 4)
    m.d.comb += [
        stream.run_flits.eq(parts.field("vectors") * flits),
        stream.runs.eq(Mux(flits == 0, 0, parts.field("runs"))),
        stream.start.eq(parts.begins),
        stream.address.eq(parts.field(f"output_{number}")),
        stream.skip.eq(parts.field("output_skip")),
        stream.turned.eq(parts.field("turns_outputs")),
        stream.ends.eq(parts.ends),
        queue.offers[number].eq(stream.offers),
        queue.addresses[number].eq(stream.to),
        queue.words[number].eq(stream.words),
        queue.word[number].eq(stream.word),
        stream.granted.eq(queue.granted[number]),
        stream.next.eq(queue.next[number]),
    ]


def _store_sums(m: Module, parts: Parts, flit_bits: int) -> None:
    """Both sums, once all results have been emitted."""
    unit, stream, place, pushes = parts.unit, parts.outputs[-1], Signal(range(SUM_FLITS + 1)), Signal()
    sums = Cat(Value.cast(unit.first_sums), Value.cast(unit.second_sums))
    with m.If(parts.field("stores_sums")):
        m.d.comb += [
            stream.run_flits.eq(SUM_FLITS),
            stream.runs.eq(1),
            pushes.eq(parts.ends & (place != SUM_FLITS)),
            stream.valid.eq(pushes),
            stream.flit.eq(sums.word_select(place, flit_bits)),
        ]
    with m.If(parts.begins):
        m.d.sync += place.eq(0)
    with m.Elif(pushes & stream.ready):
        m.d.sync += place.eq(place + 1)


def _is_positive(bits: Value) -> Value:
    """Whether float32 bits are above zero; not those of NaN, nor of a subnormal."""
    is_nan = bits[23:31].all() & bits[:23].any()
    return ~bits[31] & bits[23:31].any() & ~is_nan
