"""A lane of the vector unit: one float32 multiply-add, one comparison, or one function in a cycle."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.add import NumberAdder
from acf.rtl.design.arithmetic.multiply_fp32 import Fp32NumberMultiplier
from acf.rtl.design.arithmetic.number import FINITE, INFINITE, NOT_A_NUMBER, NUMBER, ZERO, packed, unpacked
from acf.rtl.design.fabric.results import rounded_bf16
from acf.rtl.design.vector.functions import FUNCTION_GATES, PLACE_BITS, Numbers, number_word
from acf.rtl.design.vector.operation import CONSTANTS, LITERALS, Operation
from acf.rtl.design.vector.program_set import ProgramSet
from acf.rtl.design.vector.registry import PROGRAM_SETS


def operation_layout(programs: ProgramSet) -> data.StructLayout:
    """An `Operation` in gates; ``last``: the last of its program."""
    return data.StructLayout(
        {field: bits_for(len(names) - 1) for field, names in programs.operands.items()}
        | {"function": bits_for(len(programs.functions))}
        | dict.fromkeys(("takes_x", "takes_y", "compares", "by_mask", "emits", "rounds", "last"), 1)
    )


def operation_word(programs: ProgramSet, operation: Operation, last: bool) -> int:
    """The bits of an operation."""
    fields = {field: names.index(getattr(operation, field)) for field, names in programs.operands.items()}
    fields |= {
        "function": ("", *programs.functions).index(operation.function),
        "takes_x": "x" in operation.takes,
        "takes_y": "y" in operation.takes,
        "compares": bool(operation.keeps),
        "by_mask": operation.keeps == "mask",
        "emits": operation.emits,
        "rounds": operation.rounds,
        "last": last,
    }
    layout, word = operation_layout(programs), 0
    for name, value in fields.items():
        word |= int(value) << layout[name].offset
    return word


class VectorLane(Component):
    """Performs ``operation`` in a cycle with ``active``; what it emits is at ``out`` in the next.

    It has what ``programs`` need. ``x`` and ``y`` are float32 bits, bf16 in the upper half. ``clear`` empties both
    sums; with ``to_lowest`` the first becomes -Inf. ``load_constant`` makes ``x`` constant number ``constant``.
    ``out_mask`` is 1 where the ``x`` of a comparison was positive.
    """

    def __init__(self, programs: ProgramSet = PROGRAM_SETS["cnn"]) -> None:
        self.programs = programs
        super().__init__(
            {
                "operation": In(operation_layout(programs)),
                "active": In(1),
                "clear": In(1),
                "to_lowest": In(1),
                "x": In(32),
                "y": In(32),
                "mask": In(1),
                "load_constant": In(1),
                "constant": In(range(CONSTANTS)),
                "out": Out(32),
                "out_mask": Out(1),
                "first_sum": Out(32),
                "second_sum": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Choose operands, multiply, add or compare, and keep the result."""
        m = Module()
        operation = self.operation
        sources = self._sources(m)
        m.submodules.multiplier = multiplier = Fp32NumberMultiplier()
        m.submodules.adder = adder = NumberAdder()
        # A zero with the product's sign leaves every product as it is, even -0.
        sources["nothing"] = Cat(Const(0, 31), multiplier.product.sign, Const(ZERO, 2))
        m.d.comb += [
            multiplier.x.eq(self._chosen("left", sources)),
            multiplier.y.eq(self._chosen("right", sources)),
        ]
        self._select(m, multiplier, sources)
        m.d.comb += [
            adder.x.eq(multiplier.product),
            adder.y.eq(self._chosen("addend", sources)),
        ]
        x, value = sources["x"], Signal(NUMBER)
        is_positive, kept = Signal(), Signal()
        m.d.comb += [
            is_positive.eq(~x.sign & ((x.kind == FINITE) | (x.kind == INFINITE))),
            kept.eq(Mux(operation.by_mask, self.mask, is_positive | (x.kind == NOT_A_NUMBER))),
            value.eq(Mux(operation.compares, Mux(kept, x, 0), adder.total)),
        ]
        state = Signal(signed(8), name="power"), Signal(PLACE_BITS, name="values"), Signal(PLACE_BITS, name="place")
        numbers = Numbers(multiplier.x, adder.total, x, sources["first_sum"], *state)
        for code, name in enumerate(self.programs.functions, start=1):
            found = FUNCTION_GATES[name](m, numbers, self.active & (operation.function == code))
            with m.If(operation.function == code):
                m.d.comb += value.eq(found)
        for code, name in enumerate(self.programs.operands["to"]):
            with m.If(self.active & (operation.to == code)):
                m.d.sync += sources[name].eq(value)
        with m.If(self.clear):
            m.d.sync += [sources["first_sum"].eq(0), sources["second_sum"].eq(0)]
            if "maximum" in self.programs.functions:
                with m.If(self.to_lowest):
                    m.d.sync += [sources["first_sum"].kind.eq(INFINITE), sources["first_sum"].sign.eq(1)]
        self._emit(m, value, is_positive)
        for name in ("first_sum", "second_sum"):
            m.d.comb += getattr(self, name).eq(packed(m, sources[name], f"packed_{name}"))
        return m

    def _sources(self, m: Module) -> dict[str, Any]:
        """The operands by name; inputs are held from the cycle in which they are taken."""
        bits = NUMBER.size
        sources: dict[str, Any] = {
            "one": Const(number_word(1.0), bits),
            "mask_one": Mux(self.mask, Const(number_word(1.0), bits), 0),
        }
        sources |= {name: Const(number_word(value), bits) for name, value in LITERALS.items()}
        for name, takes in (("x", self.operation.takes_x), ("y", self.operation.takes_y)):
            held, port = Signal(32, name=f"held_{name}"), getattr(self, name)
            with m.If(self.active & takes):
                m.d.sync += held.eq(port)
            sources[name] = unpacked(m, Mux(takes, port, held), f"taken_{name}")
        for name in ("result", "first_sum", "second_sum"):
            sources[name] = Signal(NUMBER, name=f"number_{name}")
        loaded = unpacked(m, self.x, "loaded")
        for number in range(CONSTANTS):
            sources[f"constant_{number}"] = constant = Signal(NUMBER, name=f"constant_{number}")
            with m.If(self.load_constant & (self.constant == number)):
                m.d.sync += constant.eq(loaded)
        return sources

    def _select(self, m: Module, multiplier: Any, sources: dict[str, Any]) -> None:
        """A function that asks whether y equals the right operand takes the left one as it is, or zero."""
        if "where_equal" not in self.programs.functions:
            return
        code = self.programs.functions.index("where_equal") + 1
        with m.If(self.operation.function == code):
            m.d.comb += multiplier.y.eq(Const(number_word(1.0), NUMBER.size))
            with m.If(sources["y"].as_value() != self._chosen("right", sources)):
                m.d.comb += multiplier.x.eq(0)

    def _emit(self, m: Module, value: Any, is_positive: Signal) -> None:
        bits = packed(m, value, "packed_value")
        with m.If(self.active & self.operation.emits):
            m.d.sync += [
                self.out.eq(Mux(self.operation.rounds, Cat(Const(0, 16), rounded_bf16(bits)), bits)),
                self.out_mask.eq(is_positive),
            ]

    def _chosen(self, field: str, sources: dict[str, Any]) -> Value:
        names = self.programs.operands[field]
        return Array([Value.cast(sources[name]) for name in names])[self.operation[field]]
