"""Combinational helpers: priority encoding, masks, balanced reductions, wrapping counters, delays."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value


class Found(NamedTuple):
    """Of some bits: whether any is set, the index of the lowest (0 if none), whether more than one is."""

    any: Value
    lowest: Value
    several: Value


def search(bits: Sequence[Value] | Value) -> Found:
    """Priority-encode bits by halves: logarithmic depth."""
    if len(bits) == 1:
        return Found(bits[0], Const(0, 0), Const(0, 1))
    half = 1 << ((len(bits) - 1).bit_length() - 1)
    low, high = search(bits[:half]), search(bits[half:])
    places = (half - 1).bit_length()
    return Found(
        low.any | high.any,
        Cat(Mux(low.any, low.lowest, high.lowest)[:places], ~low.any & high.any),
        low.several | high.several | (low.any & high.any),
    )


def lowest_set(bits: Sequence[Value] | Value) -> Value:
    """Index of the lowest bit that is set; 0 where none is."""
    return search(bits).lowest


def below(place: Value, count: int) -> Value:
    """Thermometer code: bit i of ``count`` is 1 where i < ``place``."""
    return Cat(*(place > index if index < (1 << len(place)) - 1 else Const(0, 1) for index in range(count)))


def from_place(bits: Value, place: Value) -> Value:
    """``bits`` without those below ``place``."""
    return (bits & ~below(place, len(bits)))[: len(bits)]


def word_of(words: Value, index: Value, width: int) -> Value:
    """Word number ``index`` of ``width`` bits, by a tree of multiplexers; the number of words is a power of two."""
    values = [words[start : start + width] for start in range(0, len(words), width)]
    for bit in range(len(values).bit_length() - 1):
        values = [Mux(index[bit], odd, even) for even, odd in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def chosen_word(words: Sequence[Value], index: Value) -> Value:
    """Word number ``index``; the lowest bit of it, which changes most, switches the last multiplexer alone."""
    values = list(words)
    for bit in reversed(range((len(values) - 1).bit_length())):
        half = len(values) // 2
        values = [Mux(index[bit], high, low) for low, high in zip(values[:half], values[half:], strict=True)]
    return values[0]


def steered_word(m: Module, words: Sequence[Value], index: Value, enable: Value, name: str) -> Value:
    """Word number ``index`` of the last cycle in which ``enable`` was 1; the number of words is a power of two.

    Every multiplexer has a select register of its own, which stays where the index leads past it: only those on the way
    of a word switch.
    """
    values = list(words)
    for bit in range((len(values) - 1).bit_length()):
        chosen = []
        for place in range(len(values) // 2):
            select = Signal(name=f"{name}_select_{bit}_{place}", reset_less=True)
            with m.If(enable & (index[bit + 1 :] == place)):
                m.d.sync += select.eq(index[bit])
            chosen.append(Mux(select, values[2 * place + 1], values[2 * place]))
        values = chosen
    return values[0]


def clear_lowest(bits: Value) -> Value:
    """``bits`` without the lowest that is set."""
    return (bits & (bits - 1))[: len(bits)]


def balanced(operation: Callable[[Value, Value], Value], values: Sequence[Value]) -> Value:
    """Combine values pairwise, so that a long list makes a shallow tree."""
    level = list(values)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [operation(one, other) for one, other in pairs] + level[len(level) // 2 * 2 :]
    return level[0]


def count_ones(bits: Value) -> Value:
    """How many bits are set."""
    return balanced(lambda one, other: one + other, [bits[index] for index in range(len(bits))])


def any_of(values: Sequence[Value]) -> Value:
    """Whether one of them is set."""
    return balanced(lambda one, other: one | other, values)


def all_of(values: Sequence[Value]) -> Value:
    """Whether all of them are set."""
    return balanced(lambda one, other: one & other, values)


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """``value`` as it was ``cycles`` ago; registers without reset, so that shift-register LUTs can hold it."""
    for place in range(cycles):
        stage = Signal.like(value, name=f"{name}_{place}", reset_less=True)
        m.d.sync += stage.eq(value)
        value = stage
    return value


ALWAYS = Const(1, 1)
"""The enable of a register that is loaded in every cycle."""


def delayed_when(m: Module, value: Value, enables: Sequence[Value], name: str) -> Value:
    """``value`` through a register for each of ``enables``, loaded where that is 1, so that its clock can be gated."""
    for place, enable in enumerate(enables):
        stage = Signal.like(value, name=f"{name}_{place}", reset_less=True)
        if enable is ALWAYS:
            m.d.sync += stage.eq(value)
        else:
            with m.If(enable):
                m.d.sync += stage.eq(value)
        value = stage
    return value


def delayed_flit(m: Module, flit: Any, cycles: int, name: str) -> Any:
    """``flit`` as it was ``cycles`` ago; a structure with a field ``valid``.

    Only a valid flit loads the other fields, so that their clock can be gated: they keep old values beside ``valid`` 0.
    """
    for place in range(cycles):
        stage: Any = Signal.like(flit, name=f"{name}_{place}", reset_less=True)
        with m.If(flit.valid):
            m.d.sync += stage.eq(flit)
        m.d.sync += stage.valid.eq(flit.valid)
        flit = stage
    return flit


def wrapped(number: Value, limit: int) -> Value:
    """``number`` below ``2 * limit`` brought below ``limit``."""
    return Mux(number >= limit, number - limit, number)


def masked(bits: Value, keep: Value) -> Value:
    """``bits`` where ``keep`` is 1, else 0."""
    return bits & keep.replicate(len(bits))


def gathered(bits: Value, places: Value) -> Value:
    """The ``bits`` at the set bits of ``places``, moved together to the low end (x86's ``pext``)."""
    moved = [
        (bits[place] & places[place]) << (count_ones(places[:place]) if place else Const(0, 1))
        for place in range(len(bits))
    ]
    return balanced(lambda one, other: one | other, moved)[: len(bits)]
