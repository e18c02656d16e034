"""Proofs about queues and credits, and that they can fail."""

import pytest
from amaranth.hdl import Array, Module, Signal

from acf.rtl.design.primitives.fifo import BoundedFifo
from acf.rtl.verify.formal.prove import prove_by_induction, prove_within
from acf.rtl.verify.formal.queues import CreditsCoverTheQueue, QueueKeepsOrder


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
    monkeypatch.setattr("acf.rtl.verify.formal.queues.BoundedFifo", Stack)
    assert not prove_within(QueueKeepsOrder(depth=2), cycles=9).holds
