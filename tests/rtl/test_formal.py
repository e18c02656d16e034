"""What is proved of the units, and that the proofs can fail."""

import pytest
from amaranth.hdl import Array, Module, Signal, Value

from acf.rtl.formal.planner import SwapsWholeTables
from acf.rtl.formal.properties import (
    CreditsCoverTheQueue,
    EachPairOnce,
    NoFlitLostOrDuplicated,
    QueueKeepsOrder,
    SwapShowsWhatWasWritten,
    WritesDoNotDisturbReads,
)
from acf.rtl.formal.prove import prove_always, prove_by_induction, prove_within
from acf.rtl.units.fifo import BoundedFifo
from acf.rtl.units.route_planner import RoutePlanner
from acf.rtl.units.router import RouterSpec
from acf.rtl.units.routing_table import RoutingTable
from acf.rtl.units.scheduler import NARROW, WIDE, SchedulerSpec


@pytest.mark.parametrize("spec", [NARROW, WIDE], ids=["4 lanes, 4 deep", "16 lanes, 3 deep"])
def test_the_scheduler_picks_each_pair_exactly_once(spec: SchedulerSpec) -> None:
    assert prove_always(EachPairOnce(spec)).holds


def test_a_scheduler_whose_lanes_decide_at_the_same_time_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.units.scheduler.lane_levels", lambda lanes, moves: (tuple(range(lanes)),))
    proof = prove_always(EachPairOnce())
    assert not proof.holds
    assert "staged" in proof.counterexample


@pytest.mark.parametrize(("depth", "delay"), [(1, 1), (3, 2), (4, 3)])
def test_a_queue_with_credits_never_overflows(depth: int, delay: int) -> None:
    assert prove_by_induction(CreditsCoverTheQueue(depth, delay)).holds


def test_one_credit_too_many_overflows_the_queue() -> None:
    assert not prove_within(CreditsCoverTheQueue(3, 2, extra_credits=1), cycles=12).holds


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_queue_neither_loses_nor_reorders_words(depth: int) -> None:
    assert prove_within(QueueKeepsOrder(depth), cycles=3 * depth + 3).holds


class Stack(BoundedFifo):
    """Holds two words and gives back the newest."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = Array([Signal(self.width, name="first"), Signal(self.width, name="second")])
        enters, leaves = self.write_valid & self.write_ready, self.read_valid & self.read_ready
        m.d.comb += [
            self.write_ready.eq(self.level < 2),
            self.read_valid.eq(self.level > 0),
            self.read_data.eq(words[self.level - 1]),
        ]
        m.d.sync += self.level.eq(self.level + enters - leaves)
        with m.If(enters):
            m.d.sync += words[self.level - leaves].eq(self.write_data)
        return m


def test_a_stack_in_place_of_a_queue_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.formal.properties.BoundedFifo", Stack)
    assert not prove_within(QueueKeepsOrder(depth=2), cycles=9).holds


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
    monkeypatch.setattr("acf.rtl.formal.properties.RoutingTable", SingleBank)
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
    monkeypatch.setattr("acf.rtl.formal.planner.RoutePlanner", Impatient)
    assert not prove_within(SwapsWholeTables(), cycles=40).holds
