"""Two readers behind one bus: each gets its own beats, in its own order."""

import numpy as np
from amaranth.hdl import Cat, Module
from amaranth.lib.wiring import Component, In, Out, connect

from acf.rtl.design.axi.read_arbiter import ReadArbiter
from acf.rtl.design.axi.reader import BurstReader
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.primitives.wires import forward
from acf.rtl.verify.benches.axi_memory import AxiMemory

AXI = AxiSpec(data_bits=32, address_bits=13, burst_beats=4, outstanding_reads=3)
BEATS = 6
FIRST = (16, 512)
"""Where the transfers of each reader begin; a transfer has `BEATS` beats, a burst and a half."""


class TwoReaders(Component):
    """Both read one transfer after another from the same place while ``asks``; ``stalls`` as `BurstReader.stall`."""

    def __init__(self) -> None:
        self.memory = AxiMemory(AXI, 1024)
        members = self.memory.signature.members
        self.loads = ("load", "load_address", "load_data", "latency")
        super().__init__(
            {
                **{name: members[name] for name in self.loads},
                "asks": In(2),
                "stalls": In(2),
                "valid": Out(2),
                "last": Out(2),
                "beat": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = self.memory
        m.submodules.arbiter = arbiter = ReadArbiter(AXI, 2)
        readers = [BurstReader(AXI, 4, 1) for _ in FIRST]
        forward(m, self, memory, self.loads)
        forward(m, memory.bus, arbiter.bus)
        for number, reader in enumerate(readers):
            m.submodules[f"reader_{number}"] = reader
            connect(m, reader.bus, arbiter.clients[number])
            m.d.comb += [
                reader.valid.eq(self.asks[number]),
                reader.address.eq(FIRST[number]),
                reader.beats.eq(BEATS),
                reader.stall.eq(self.stalls[number]),
            ]
        m.d.comb += [
            self.valid.eq(Cat(*(reader.beat_valid for reader in readers))),
            self.last.eq(Cat(*(reader.beat_valid & reader.beat_last for reader in readers))),
            self.beat.eq(readers[0].beat),
        ]
        return m


def test_each_reader_gets_its_own_beats_and_neither_starves(interpret) -> None:
    simulation = interpret(TwoReaders())
    places = np.arange(1024)
    simulation.run({"load": 1, "load_address": places, "load_data": places})
    stalls = np.random.default_rng(0).integers(0, 4, 300)
    seen = simulation.run({"asks": 3, "latency": 5, "stalls": stalls})
    for number, first in enumerate(FIRST):
        mine = seen["valid"] >> number & 1 == 1
        beats, ends = seen["beat"][mine], seen["last"][mine] >> number & 1
        assert len(beats) > 4 * BEATS
        assert beats.tolist() == [first + place % BEATS for place in range(len(beats))]
        assert ends.tolist() == [int(place % BEATS == BEATS - 1) for place in range(len(beats))]


def test_a_single_reader_loses_no_cycle_to_the_arbiter(interpret) -> None:
    simulation = interpret(TwoReaders())
    seen = simulation.run({"asks": 2, "latency": np.full(200, 2)})
    moved = seen["valid"] == 2
    assert moved[20:].mean() > 0.9
