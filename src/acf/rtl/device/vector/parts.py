"""The components of a vector queue, and the signals between them."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Const, Signal, Value

from acf.rtl.device.vector.descriptor import FIELDS, WORDS
from acf.rtl.device.vector.traits import Traits

INPUTS = ("x", "y", "second_x")
CONSTANTS_TAG, DESCRIPTOR_TAG, TOPOLOGY_TAG = (len(INPUTS) + number for number in range(3))
"""Requesters of reads behind the input streams."""


@dataclass(frozen=True)
class Components:
    """What a queue is built of; ``traits``: of the unit's programs, by number."""

    reads: Any
    fetcher: Any
    unit: Any
    inputs: list[Any]
    outputs: list[Any]
    traits: list[Traits]


class Parts:
    """The components of a queue, and the signals between its pieces; ``now`` is the descriptor that runs.

    ``ends``: the unit has emitted the last result of the descriptor.
    """

    def __init__(self, components: Components) -> None:
        self.reads, self.fetcher, self.unit = components.reads, components.fetcher, components.unit
        self.inputs, self.outputs, self.traits = components.inputs, components.outputs, components.traits
        self.now, self.begins, self.has_constants = Signal(32 * WORDS), Signal(), Signal()
        self.ends, self.constants = Signal(), Signal(len(Value.cast(self.unit.x)))

    def field(self, name: str) -> Value:
        """A field of the descriptor that runs."""
        return field_of(self.now, name)

    def following(self, name: str) -> Value:
        """A field of the next descriptor."""
        return field_of(self.fetcher.words, name)

    def by_program(self, values: list[Any], bits: int) -> Value:
        """The value of the program that runs; ``values``: one for each."""
        return Array(Const(int(value), bits) for value in values)[self.field("program")]


def field_of(words: Value, name: str) -> Value:
    """A field of a descriptor of which ``words`` are the bits."""
    word, low, bits, _ = FIELDS[name]
    return words[32 * word + low : 32 * word + low + bits]
