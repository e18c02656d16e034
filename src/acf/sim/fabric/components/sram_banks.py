"""Banks of on-chip memory: one flit per cycle each, so two tiles of one bank are read one after the other."""

from typing import NamedTuple

import numpy as np

from acf.jit import inlined
from acf.sim.fabric.traffic import Int64s, Traffic

REMEMBERED = 8
"""Reservations that a bank remembers. The event engine visits packets by k-step: a request may lie before others."""


class SramBanks(NamedTuple):
    """Reservations ``begin`` up to ``end [banks, REMEMBERED]`` in cycles, and the ``next`` to be overwritten."""

    begin: Int64s
    end: Int64s
    next: Int64s

    @classmethod
    def new(cls, traffic: Traffic) -> "SramBanks":
        """Banks that nobody reads."""
        banks = int(traffic.load.bank.max(initial=-1)) + 1
        zeros = np.zeros((2, banks, REMEMBERED), dtype=np.int64)
        return cls(zeros[0], zeros[1], np.zeros(banks, dtype=np.int64))


@inlined
def read_bank(banks: SramBanks, bank: int, time: int, cycles: int) -> int:
    """Reserve a bank for ``cycles`` from ``time`` on, or from the first gap after it; returns the first cycle."""
    begin, moved = time, True
    while moved:
        moved = False
        for index in range(REMEMBERED):
            if banks.begin[bank, index] < begin + cycles and begin < banks.end[bank, index]:
                begin, moved = banks.end[bank, index], True
    slot = banks.next[bank]
    banks.begin[bank, slot], banks.end[bank, slot] = begin, begin + cycles
    banks.next[bank] = (slot + 1) % REMEMBERED
    return int(begin)
