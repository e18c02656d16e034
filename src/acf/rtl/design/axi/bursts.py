"""Splitting a transfer into bursts."""

from amaranth.hdl import Module, Mux, Signal, Value

from acf.rtl.design.axi.spec import AxiSpec


def next_burst(m: Module, spec: AxiSpec, address: Value, left: Value, name: str) -> Signal:
    """Beats of the next burst from beat ``address`` on: limited by page, burst length and beats ``left``."""
    to_page_end = Signal(range(spec.page_beats + 1), name=f"{name}_to_page_end")
    most, beats = Signal(range(spec.burst_beats + 1), name=f"{name}_most"), Signal(range(257), name=name)
    within = address[: spec.page_beats.bit_length() - 1]
    m.d.comb += [
        to_page_end.eq(spec.page_beats - within),
        most.eq(Mux(to_page_end < spec.burst_beats, to_page_end, spec.burst_beats)),
        beats.eq(Mux(left < most, left, most)),
    ]
    return beats
