"""What is proved of the fabric's lines, receivers and credits, and that a broken part fails each proof."""

from typing import Any

import pytest
from amaranth.hdl import Module, Signal

import acf.sim
from acf.rtl.design.fabric.line import CreditLine, PacketLine, ResultLine
from acf.rtl.design.fabric.receiver import TileReceiver
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.primitives.bits import delayed
from acf.rtl.verify.formal.fabric import (
    BitmapsShowTheValues,
    CopiesReachTheirDestinations,
    CreditsComeBackOnce,
    CreditsKeepQueuesFromOverflowing,
    FlitsFillTheRing,
    ResultsNeverMeet,
)
from acf.rtl.verify.formal.prove import prove_by_induction, prove_within

TINY = {"mesh_rows": 2, "mesh_columns": 2, "scus_per_cluster": 8, "tile": 8, "link_bytes": 16}
QUEUES = {"queue_packets": 1, "parallel_slots": 1, "accumulator_tiles": 1, "prefetch_packets": 2}


def sizes(**changes: Any) -> FabricSizes:
    return FabricSizes(acf.sim.spec("acf-512", **(TINY | QUEUES | changes)), command_depth=2, memory_flits=2)


@pytest.mark.parametrize(("places", "serial"), [(2, True), (3, False)], ids=["row", "column"])
def test_a_line_gives_every_destination_one_copy_and_nobody_else(places: int, serial: bool) -> None:
    property_ = CopiesReachTheirDestinations(sizes(mesh_columns=3, hop_cycles=1), places, serial)
    assert prove_by_induction(property_, property_.longest + 2).holds


class GreedyLine(PacketLine):
    """Gives the last router a copy of everything that comes by."""

    def _copy(self, m: Module, copy: Any, flit: Any) -> None:
        super()._copy(m, copy, flit)
        if len(flit.destinations) == 1:
            m.d.comb += copy.valid.eq(flit.valid | flit.packed)


def test_a_line_that_copies_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.fabric.PacketLine", GreedyLine)
    assert not prove_within(CopiesReachTheirDestinations(sizes(), 2, serial=False), cycles=5).holds


def test_credits_come_back_once() -> None:
    property_ = CreditsComeBackOnce(sizes(), 3, 2)
    assert prove_by_induction(property_, property_.longest + 2).holds


class EchoingCredits(CreditLine):
    """Gives the nearest cluster's credits back a second time, a cycle later."""

    def elaborate(self, platform: object) -> Module:
        m, hop = Module(), self.sizes.shape.hop_cycles
        for place in range(self.places):
            back = delayed(m, self.given[place], hop * (place + 1) - 1, f"credit_{place}")
            echo = delayed(m, back, 1, f"echo_{place}") if place == 0 else 0
            m.d.comb += self.back[place].eq(back | echo)
        return m


def test_a_line_that_repeats_credits_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.fabric.CreditLine", EchoingCredits)
    assert not prove_within(CreditsComeBackOnce(sizes(), 3, 2), cycles=6).holds
    assert not prove_within(CreditsKeepQueuesFromOverflowing(sizes(mesh_columns=3, hop_cycles=1), 1), cycles=18).holds


@pytest.mark.parametrize(("columns", "hop"), [(2, 2), (3, 1)])
def test_results_of_a_row_never_meet(columns: int, hop: int) -> None:
    property_ = ResultsNeverMeet(sizes(mesh_columns=columns, hop_cycles=hop))
    assert prove_by_induction(property_, property_.longest + columns + 2).holds


def test_results_out_of_turn_meet() -> None:
    assert not prove_within(ResultsNeverMeet(sizes(), in_turns=False), cycles=8).holds


class NearSighted(ResultLine):
    """Knows of the nearest cluster alone."""

    def elaborate(self, platform: object) -> Module:
        m, nearest = Module(), Signal(self.layout)
        m.d.comb += [nearest.valid.eq(self.valid[0]), nearest.data.eq(self.results[0])]
        m.d.comb += self.edge.eq(delayed(m, nearest, self.sizes.shape.hop_cycles, "hop"))
        return m


def test_a_line_that_drops_what_comes_from_afar_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.fabric.ResultLine", NearSighted)
    assert not prove_within(ResultsNeverMeet(sizes()), cycles=8).holds


@pytest.mark.parametrize("places", [1, 2, 3])
def test_flits_fill_the_ring_of_places(places: int) -> None:
    assert prove_by_induction(FlitsFillTheRing(sizes(), places)).holds


class Overwriting(TileReceiver):
    """Has a place less than it should."""

    def __init__(self, sizes: FabricSizes, places: int) -> None:
        super().__init__(sizes, places)
        self.places = places - 1


def test_a_ring_with_a_place_too_few_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.fabric.TileReceiver", Overwriting)
    assert not prove_within(FlitsFillTheRing(sizes(), 3), cycles=8).holds


def test_a_bitmap_shows_every_value_of_two_tiles() -> None:
    assert prove_within(BitmapsShowTheValues(sizes(link_bytes=32)), cycles=9).holds


class Forgetful(TileReceiver):
    """Takes every flit for one of a packed tile."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = TileReceiver(self.sizes, self.places)
        m.d.comb += [
            inner.valid.eq(self.valid),
            inner.last.eq(self.last),
            inner.packed.eq(1),
            inner.data.eq(self.data),
            self.whole.eq(inner.whole),
            self.bitmap.eq(inner.bitmap),
        ]
        return m


def test_a_receiver_that_misreads_full_tiles_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acf.rtl.verify.formal.fabric.TileReceiver", Forgetful)
    assert not prove_within(BitmapsShowTheValues(sizes(link_bytes=32)), cycles=5).holds


def test_no_queue_and_no_store_overflows() -> None:
    assert prove_within(CreditsKeepQueuesFromOverflowing(sizes(mesh_columns=3, hop_cycles=1), 1), cycles=18).holds


def test_room_that_is_not_there_overflows() -> None:
    property_ = CreditsKeepQueuesFromOverflowing(sizes(mesh_columns=3, hop_cycles=1, queue_packets=2), 1, extra_room=1)
    assert not prove_within(property_, cycles=18).holds
