"""The index memory of a device: when an index is read, and when a wait for a new one ends."""

from typing import Any

import numpy as np
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from acf.lowering.descriptor import DESCRIPTOR_WORDS, FIELDS
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.primitives.wires import forward
from acf.rtl.device.index_memory import IndexMemory
from acf.rtl.verify.benches.axi_memory import AxiMemory

AXI = AxiSpec(data_bits=32, address_bits=13, burst_beats=4, outstanding_reads=3)
INDEX_WORDS = 8
CYCLES = 200


class LoadedIndex(Component):
    """An index memory and the memory that it loads from."""

    def __init__(self) -> None:
        self.memory = AxiMemory(AXI, 2048)
        members = self.memory.signature.members
        self.loads = ("load", "load_address", "load_data", "latency")
        super().__init__(
            {
                **{name: members[name] for name in self.loads},
                "start": In(1),
                "waits": In(1),
                "gives_up": In(1),
                "busy": Out(1),
                "beat_valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory, index = self.memory, IndexMemory(AXI, 64)
        m.submodules.memory, m.submodules.index = memory, index
        forward(m, self, memory, self.loads)
        forward(m, memory.bus, index.bus)
        forward(m, self, index, ["start", "waits", "gives_up", "busy", "beat_valid"])
        return m


def loaded(interpret: Any, fresh_index: bool) -> Any:
    """A simulation whose memory holds a descriptor, and its index a page behind it."""
    words = np.zeros(2048, dtype=np.int64)
    words[FIELDS["fresh_index"].word] |= int(fresh_index) << FIELDS["fresh_index"].low
    words[FIELDS["index_words"].word] = INDEX_WORDS
    words[FIELDS["index_page"].word] = 1
    simulation = interpret(LoadedIndex())
    simulation.run({"load": 1, "load_address": np.arange(2048), "load_data": words})
    return simulation


def beats(seen: dict[str, Any]) -> int:
    return int(seen["beat_valid"].sum())


def test_an_index_is_read_at_once_unless_it_is_to_be_fresh(interpret: Any) -> None:
    start = np.arange(CYCLES) == 0
    seen = loaded(interpret, fresh_index=False).run({"start": start, "waits": 1, "latency": 3})
    assert beats(seen) == DESCRIPTOR_WORDS + INDEX_WORDS
    assert not seen["busy"][-1]


def test_a_fresh_index_is_read_when_it_need_not_wait_any_more(interpret: Any) -> None:
    simulation = loaded(interpret, fresh_index=True)
    seen = simulation.run({"start": np.arange(CYCLES) == 0, "waits": 1, "latency": 3})
    assert beats(seen) == DESCRIPTOR_WORDS
    assert seen["busy"][-1]
    seen = simulation.run({"waits": 0, "latency": 3}, CYCLES)
    assert beats(seen) == INDEX_WORDS
    assert not seen["busy"][-1]


def test_a_wait_for_a_fresh_index_can_be_given_up(interpret: Any) -> None:
    simulation = loaded(interpret, fresh_index=True)
    simulation.run({"start": np.arange(CYCLES) == 0, "waits": 1, "latency": 3})
    seen = simulation.run({"waits": 1, "gives_up": np.arange(CYCLES) == 0, "latency": 3})
    assert beats(seen) == 0
    assert not seen["busy"][-1]
