"""A lane of the vector unit: one float32 multiply-add, or one comparison, in a cycle."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.arithmetic.add import NumberAdder
from acf.rtl.design.arithmetic.multiply_fp32 import Fp32NumberMultiplier
from acf.rtl.design.arithmetic.number import FINITE, INFINITE, NOT_A_NUMBER, NUMBER, ZERO, packed, unpacked
from acf.rtl.design.fabric.results import rounded_bf16
from acf.rtl.design.vector.programs import CONSTANTS, OPERANDS, SEED, Operation

OPERATION = data.StructLayout(
    {field: bits_for(len(names) - 1) for field, names in OPERANDS.items()}
    | dict.fromkeys(("takes_x", "takes_y", "compares", "by_mask", "emits", "rounds", "seeds", "last"), 1)
)
"""An `Operation` in gates; ``last``: the last of its program."""

_ONE = 127 << 23 | FINITE << 32


def operation_word(operation: Operation, last: bool) -> int:
    """The bits of an `OPERATION`."""
    fields = {field: names.index(getattr(operation, field)) for field, names in OPERANDS.items()}
    fields |= {
        "takes_x": "x" in operation.takes,
        "takes_y": "y" in operation.takes,
        "compares": bool(operation.keeps),
        "by_mask": operation.keeps == "mask",
        "emits": operation.emits,
        "rounds": operation.rounds,
        "seeds": operation.seeds,
        "last": last,
    }
    word = 0
    for name, value in fields.items():
        word |= int(value) << OPERATION[name].offset
    return word


class VectorLane(Component):
    """Performs ``operation`` in a cycle with ``active``; what it emits is at ``out`` in the next.

    ``x`` and ``y`` are float32 bits, bf16 in the upper half. ``clear`` empties both sums. ``load_constant`` makes ``x``
    constant number ``constant``. ``out_mask`` is 1 where the ``x`` of a comparison was positive.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "operation": In(OPERATION),
                "active": In(1),
                "clear": In(1),
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
            multiplier.x.eq(_chosen(operation.left, "left", sources)),
            multiplier.y.eq(_chosen(operation.right, "right", sources)),
            adder.x.eq(multiplier.product),
            adder.y.eq(_chosen(operation.addend, "addend", sources)),
        ]
        x, value, seed = sources["x"], Signal(NUMBER), Signal(NUMBER)
        is_positive, kept = Signal(), Signal()
        left = multiplier.x
        seed_bits = (SEED - Cat(left.fraction, left.exponent)[1:])[:31]
        m.d.comb += [
            is_positive.eq(~x.sign & ((x.kind == FINITE) | (x.kind == INFINITE))),
            kept.eq(Mux(operation.by_mask, self.mask, is_positive | (x.kind == NOT_A_NUMBER))),
            seed.eq(Cat(seed_bits, Const(0, 1), Mux(left.kind == FINITE, FINITE, NOT_A_NUMBER))),
            value.eq(Mux(operation.compares, Mux(kept, x, 0), Mux(operation.seeds, seed, adder.total))),
        ]
        for code, name in enumerate(OPERANDS["to"]):
            with m.If(self.active & (operation.to == code)):
                m.d.sync += sources[name].eq(value)
        with m.If(self.clear):
            m.d.sync += [sources["first_sum"].eq(0), sources["second_sum"].eq(0)]
        self._emit(m, value, is_positive)
        for name in ("first_sum", "second_sum"):
            m.d.comb += getattr(self, name).eq(packed(m, sources[name], f"packed_{name}"))
        return m

    def _sources(self, m: Module) -> dict[str, Any]:
        """The operands by name; inputs are held from the cycle in which they are taken."""
        sources: dict[str, Any] = {"one": Const(_ONE, len(Value.cast(Signal(NUMBER))))}
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

    def _emit(self, m: Module, value: Any, is_positive: Signal) -> None:
        bits = packed(m, value, "packed_value")
        with m.If(self.active & self.operation.emits):
            m.d.sync += [
                self.out.eq(Mux(self.operation.rounds, Cat(Const(0, 16), rounded_bf16(bits)), bits)),
                self.out_mask.eq(is_positive),
            ]


def _chosen(code: Value, field: str, sources: dict[str, Any]) -> Value:
    return Array([Value.cast(sources[name]) for name in OPERANDS[field]])[code]
