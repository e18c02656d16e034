"""The vector unit: lanes that perform one operation each in a cycle, and the sequencer of their programs."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.errors import RtlError
from acf.rtl.design.primitives.shared_modules import place
from acf.rtl.design.vector.lane import VectorLane, operation_layout, operation_word
from acf.rtl.design.vector.operation import CONSTANTS
from acf.rtl.design.vector.program_set import starts_lowest
from acf.rtl.design.vector.registry import PROGRAM_SETS, check_program_sets

COUNT_BITS = 24
"""Bits of the number of vectors of a pass."""


@dataclass(frozen=True)
class VectorSpec:
    """``lanes``: values that the unit works on at a time; ``programs``: the name of a set of `PROGRAM_SETS`."""

    lanes: int = 8
    programs: str = "cnn"

    def __post_init__(self) -> None:
        check_program_sets()
        if self.programs not in PROGRAM_SETS:
            raise RtlError(
                f"programs {self.programs!r} is not one of {', '.join(PROGRAM_SETS)}; use one of these names"
            )
        if self.lanes < 1:
            raise RtlError(f"lanes {self.lanes} must be at least 1; give a positive number")


class VectorUnit(Component):
    """Runs pass number ``program`` (`ProgramSet.number`) over ``vectors`` vectors, a value for every lane of ``spec``.

    ``start`` is taken while ``busy`` is 0, and refused (``refused`` in that cycle) otherwise, or where there is no such
    program or no vector. A lane performs an operation in every cycle with ``works``; the unit waits while an operation
    needs inputs that are not there (``in_valid``) or an output register that was not read (``out_ready``). ``x``, ``y``
    and ``out`` are float32 bits by lane, bf16 in the upper half. ``in_mask`` and ``out_mask``: which outputs of a ReLU
    were positive. ``first_sums`` and ``second_sums`` are those of the latest pass, from the cycle after its last
    operation until the next start, which clears them (to -Inf before a maximum) unless it comes with ``keeps_sums``.
    ``load_constant`` makes ``x`` the constants number ``constant`` of all lanes.
    """

    def __init__(self, spec: VectorSpec | None = None) -> None:
        spec = spec or VectorSpec()
        self.lanes = lanes = spec.lanes
        self.programs = PROGRAM_SETS[spec.programs]
        words = data.ArrayLayout(32, lanes)
        super().__init__(
            {
                "start": In(1),
                "program": In(bits_for(len(self.programs.programs) - 1)),
                "vectors": In(COUNT_BITS),
                "keeps_sums": In(1),
                "refused": Out(1),
                "busy": Out(1),
                "works": Out(1),
                "x": In(words),
                "y": In(words),
                "in_mask": In(lanes),
                "in_valid": In(1),
                "in_ready": Out(1),
                "out": Out(words),
                "out_mask": Out(lanes),
                "out_valid": Out(1),
                "out_ready": In(1),
                "load_constant": In(1),
                "constant": In(range(CONSTANTS)),
                "first_sums": Out(words),
                "second_sums": Out(words),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The sequencer, and lanes that all do the same."""
        m = Module()
        begins, operation = Signal(), Signal(operation_layout(self.programs))
        self._sequence(m, begins, operation)
        to_lowest = Array(Const(starts_lowest(program), 1) for program in self.programs.programs.values())[self.program]
        for number in range(self.lanes):
            lane = place(m, f"lane_{number}", VectorLane(self.programs), "vector_lane")
            m.d.comb += [
                lane.operation.eq(operation),
                lane.active.eq(self.works),
                lane.clear.eq(begins & ~self.keeps_sums),
                lane.to_lowest.eq(to_lowest),
                lane.x.eq(self.x[number]),
                lane.y.eq(self.y[number]),
                lane.mask.eq(self.in_mask[number]),
                lane.load_constant.eq(self.load_constant),
                lane.constant.eq(self.constant),
                self.out[number].eq(lane.out),
                self.out_mask[number].eq(lane.out_mask),
                self.first_sums[number].eq(lane.first_sum),
                self.second_sums[number].eq(lane.second_sum),
            ]
        return m

    def _sequence(self, m: Module, begins: Signal, operation: Signal) -> None:
        """Step through the program's operations for every vector."""
        programs = list(self.programs.programs.values())
        words = [
            operation_word(self.programs, each, place == len(program) - 1)
            for program in programs
            for place, each in enumerate(program)
        ]
        firsts = [sum(len(each) for each in programs[:number]) for number in range(len(programs))]
        place_bits = bits_for(len(words) - 1)
        at, first, left = Signal(place_bits), Signal(place_bits), Signal(COUNT_BITS)
        chosen = Array(Const(place, place_bits) for place in firsts)[self.program]
        is_known = (self.program < len(programs)) & (self.vectors != 0)
        m.d.comb += [
            begins.eq(self.start & ~self.busy & is_known),
            self.refused.eq(self.start & ~begins),
            operation.as_value().eq(Array(Const(word, operation.shape().size) for word in words)[at]),
            self.works.eq(
                self.busy & (self.in_valid | ~operation.takes_x) & (~self.out_valid | self.out_ready | ~operation.emits)
            ),
            self.in_ready.eq(self.works & operation.takes_x),
        ]
        with m.If(begins):
            m.d.sync += [self.busy.eq(1), Cat(at, first).eq(Cat(chosen, chosen)), left.eq(self.vectors)]
        with m.If(self.works):
            m.d.sync += at.eq(at + 1)
            with m.If(operation.last):
                m.d.sync += [at.eq(first), left.eq(left - 1), self.busy.eq(left != 1)]
        with m.If(self.works & operation.emits):
            m.d.sync += self.out_valid.eq(1)
        with m.Elif(self.out_ready):
            m.d.sync += self.out_valid.eq(0)
