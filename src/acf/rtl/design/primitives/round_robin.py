"""Round-robin arbitration: the first request at or after a pointer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from acf.rtl.design.primitives.bits import any_of


def first_from(m: Module, asking: Value, turn: Value, name: str) -> Signal:
    """One-hot: the first set bit of ``asking`` at or after ``turn``, round the end; 0 where none is set."""
    width = len(asking)
    ahead, chosen = Signal(width, name=f"{name}_ahead"), Signal(width, name=name)
    highest = (1 << len(turn)) - 1
    reached = [turn <= place if place < highest else Const(1, 1) for place in range(width)]
    m.d.comb += ahead.eq(asking & Cat(*reached))
    m.d.comb += chosen.eq(Mux(ahead.any(), _lowest(ahead), _lowest(asking)))
    return chosen


def _lowest(bits: Value) -> Value:
    """One-hot: the lowest set bit."""
    return bits & (~bits + 1)[: len(bits)]


def index_of(one_hot: Value) -> Value:
    """The place of the only set bit; 0 where none is set."""
    width = max(1, (len(one_hot) - 1).bit_length())
    bits = [Cat(*(one_hot[place] for place in range(len(one_hot)) if place >> bit & 1)).any() for bit in range(width)]
    return Cat(*bits)


def after(one_hot: Value) -> Value:
    """The place behind the only set bit, round the end."""
    return index_of(Cat(one_hot[-1], one_hot[:-1])) if len(one_hot) > 1 else Const(0, 1)


def select(one_hot: Value, values: list[Value]) -> Value:
    """The value at the only set bit; 0 where none is set."""
    return any_of([value & bit.replicate(len(value)) for bit, value in zip(one_hot, values, strict=True)])
