"""Proofs about the routing table, the router and the route planner, and that they can fail."""

import pytest
from amaranth.hdl import Array, Module, Signal, Value

from acf.rtl.design.mesh.route_planner import RoutePlanner
from acf.rtl.design.mesh.router import RouterSpec
from acf.rtl.design.mesh.routing_table import RoutingTable
from acf.rtl.verify.formal.mesh import (
    NoFlitLostOrDuplicated,
    SwapShowsWhatWasWritten,
    SwapsWholeTables,
    WritesDoNotDisturbReads,
)
from acf.rtl.verify.formal.prove import prove_by_induction, prove_within


class SingleBank(RoutingTable):
    """Writes to the entries that are in use."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = Array([Signal(self.outputs, name=f"entry_{number}") for number in range(1 << self.id_bits)])
        m.d.comb += [found.eq(entries[asked]) for asked, found in zip(self.ids, self.ports, strict=True)]
        with m.If(self.write):
            m.d.sync += entries[self.write_id].eq(self.write_ports)
        return m


def test_a_table_with_a_single_bank_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.mesh.RoutingTable", SingleBank)
    assert not prove_within(WritesDoNotDisturbReads(), cycles=6).holds
    assert not prove_within(SwapShowsWhatWasWritten(), cycles=6).holds


def test_writing_the_spare_bank_changes_no_route() -> None:
    assert prove_by_induction(WritesDoNotDisturbReads()).holds


def test_a_swap_shows_the_whole_new_table_at_once() -> None:
    assert prove_within(SwapShowsWhatWasWritten(), cycles=10).holds


@pytest.mark.parametrize(
    ("ports", "channels", "flits", "cycles"), [(2, 1, 2, 11), (2, 2, 1, 10), (3, 1, 2, 9)], ids=["two", "vc", "three"]
)
def test_a_router_neither_loses_nor_duplicates_a_flit(ports: int, channels: int, flits: int, cycles: int) -> None:
    spec = RouterSpec(ports=ports, virtual_channels=channels, queue_flits=flits, ids=1 << ports, data_bits=1)
    assert prove_within(NoFlitLostOrDuplicated(spec), cycles).holds


def test_a_neighbour_that_overruns_its_credits_loses_a_flit() -> None:
    assert not prove_within(NoFlitLostOrDuplicated(extra_credits=1), cycles=14).holds


def test_a_planner_swaps_whole_tables_between_steps() -> None:
    assert prove_within(SwapsWholeTables(), cycles=40).holds


class Impatient(RoutePlanner):
    """Leaves the last router's entries out."""

    def _counts(self, m: Module, number: Signal, limit: int) -> Value:
        return super()._counts(m, number, limit - 1 if number is self._router else limit)


def test_a_planner_that_swaps_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.mesh.RoutePlanner", Impatient)
    assert not prove_within(SwapsWholeTables(), cycles=40).holds
