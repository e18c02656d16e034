"""The FSM from start to done: reset the fabric, load its counts, run it, flush its results."""

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import bits_for

from acf.rtl.design.fabric.sizes import FabricSizes


class Phase(IntEnum):
    """The states."""

    REST = 0
    RESET = 1
    COUNTS = 2
    RUN = 3
    FLUSH = 4
    STOPPED = 5


def settle_cycles(sizes: FabricSizes) -> int:
    """Cycles after which every pipeline of a fabric that is done must be empty."""
    shape = sizes.shape
    hops = shape.hop_cycles * (shape.mesh_rows + shape.mesh_columns + 2)
    pipelines = sizes.datapath_delay + hops + 2 * shape.result_flit_cycles + 2 * shape.sum_flit_cycles
    return pipelines + 2 * sizes.tile_flits + 16


class Sequencer(Component):
    """``start`` begins a program unless one runs; ``is_done`` holds from its end to the next start.

    After `settle_cycles` every pipeline is empty. ``bus_is_idle``: no burst is in flight. ``stop``: a
    command could not be read and the program is abandoned; only ``start`` leaves that state. In the state COUNTS
    ``place`` runs over the lines and over the result streams of every line, one a cycle.
    """

    def __init__(self, sizes: FabricSizes) -> None:
        self.settle_cycles = settle_cycles(sizes)
        self.places = sizes.shape.mesh_rows + sizes.shape.mesh_columns
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "fabric_is_done": In(1),
                "results_are_out": In(1),
                "bus_is_idle": In(1),
                "reset": Out(1),
                "begins": Out(1),
                "counts": Out(1),
                "place": Out(bits_for(self.places - 1)),
                "run": Out(1),
                "flush": Out(1),
                "is_busy": Out(1),
                "is_done": Out(1),
                "is_stopped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One state after the other."""
        m = Module()
        phase, waited = Signal(Phase), Signal(range(max(self.settle_cycles, self.places) + 1))
        asked = Signal()  # to start, as soon as the bus is idle
        m.d.comb += [
            self.reset.eq(phase == Phase.RESET),
            self.begins.eq((phase == Phase.COUNTS) & (waited == 0)),
            self.counts.eq(phase == Phase.COUNTS),
            self.place.eq(waited),
            self.run.eq(phase == Phase.RUN),
            self.flush.eq(phase == Phase.FLUSH),
            self.is_busy.eq(asked | ((phase != Phase.REST) & (phase != Phase.STOPPED))),
            self.is_stopped.eq((phase == Phase.STOPPED) & ~asked),
        ]
        m.d.sync += waited.eq(waited + 1)
        with m.Switch(phase):
            with m.Case(Phase.REST, Phase.STOPPED):
                with m.If(self.start):
                    m.d.sync += [asked.eq(1), self.is_done.eq(0)]
                with m.If(asked & self.bus_is_idle):
                    m.d.sync += [phase.eq(Phase.RESET), waited.eq(0), asked.eq(0)]
            with m.Case(Phase.RESET), m.If(waited == self.settle_cycles):
                m.d.sync += [phase.eq(Phase.COUNTS), waited.eq(0)]
            with m.Case(Phase.COUNTS), m.If(waited == self.places - 1):
                m.d.sync += [phase.eq(Phase.RUN), waited.eq(0)]
            with m.Case(Phase.RUN):
                m.d.sync += waited.eq(Mux(self.fabric_is_done, waited + 1, 0))
                with m.If(self.stop):
                    m.d.sync += phase.eq(Phase.STOPPED)
                with m.Elif(waited == self.settle_cycles):
                    m.d.sync += phase.eq(Phase.FLUSH)
            with m.Case(Phase.FLUSH), m.If(self.results_are_out & self.bus_is_idle):
                m.d.sync += [phase.eq(Phase.REST), self.is_done.eq(1)]
        return m
