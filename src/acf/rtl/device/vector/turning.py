"""Transposes tiles of a stream in passing, so that a lane has a row of values where memory has rows of tiles."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

VALUE_BITS = 16


class TileTurner(Component):
    """Takes tiles of ``side`` flits of ``side`` bf16 values, and gives those of their transposes.

    A flit enters where ``valid`` meets ``ready``, and one leaves where ``out_valid`` meets ``take``. While a tile
    leaves the next one enters, flit by flit, so that a tile takes ``side`` cycles; ``more`` is 0 where no tile follows.
    """

    def __init__(self, side: int) -> None:
        self.side = side
        bits = side * VALUE_BITS
        super().__init__(
            {
                "valid": In(1),
                "ready": Out(1),
                "flit": In(bits),
                "more": In(1),
                "out_valid": Out(1),
                "out": Out(bits),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A register for every value; one tile moves up and leaves at the top, the next one to the left, in turn."""
        m, side = Module(), self.side
        values = [[Signal(VALUE_BITS, name=f"value_{row}_{column}") for column in range(side)] for row in range(side)]
        is_loaded, to_left, shifts, place = Signal(), Signal(), Signal(), Signal(range(side))
        m.d.comb += [
            self.out_valid.eq(is_loaded & (self.valid | ~self.more)),
            self.ready.eq(~is_loaded | self.take),
            shifts.eq(Mux(is_loaded, self.out_valid & self.take, self.valid)),
            self.out.eq(Mux(to_left, Cat(row[0] for row in values), Cat(values[0]))),
        ]
        entering = [self.flit.word_select(number, VALUE_BITS) for number in range(side)]
        with m.If(shifts):
            m.d.sync += place.eq(place + 1)
            with m.If(place == side - 1):
                m.d.sync += [place.eq(0), to_left.eq(~to_left), is_loaded.eq(self.valid)]
            for row in range(side):
                for column in range(side):
                    below = values[row + 1][column] if row + 1 < side else entering[column]
                    right = values[row][column + 1] if column + 1 < side else entering[row]
                    m.d.sync += values[row][column].eq(Mux(to_left, right, below))
        return m


class Spreader(Component):
    """Takes flits of ``side`` bf16 values and gives a vector for each value, which is then in all lanes."""

    def __init__(self, side: int) -> None:
        self.side = side
        bits = side * VALUE_BITS
        super().__init__({"flit": In(bits), "ready": Out(1), "out": Out(bits), "take": In(1)})

    def elaborate(self, platform: object) -> Module:
        """A counter; the flit is held by whoever offers it until ``ready``."""
        m, place = Module(), Signal(range(self.side))
        value = Array(self.flit.word_select(number, VALUE_BITS) for number in range(self.side))[place]
        m.d.comb += [self.ready.eq(self.take & (place == self.side - 1)), self.out.eq(value.replicate(self.side))]
        with m.If(self.take):
            m.d.sync += place.eq(Mux(place == self.side - 1, 0, place + 1))
        return m
