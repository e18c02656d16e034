"""What a controller offers to the lines of the fabric, cycle by cycle."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acf.lowering.product_index import PACKED, flits_of


@dataclass(frozen=True)
class Offer:
    """A command for a line; it is offered until the line takes it.

    ``is_gap``: for the adder behind a mesh column alone, which has no part in a round of its chain.
    """

    line: int
    word: int
    is_gap: bool = False


Cycle = Offer | None


def played_against(cycles: Iterator[Cycle], ready: np.ndarray) -> list[Cycle]:
    """The offers cycle by cycle where line n takes one in the cycles of ``ready [cycles, lines]``."""
    seen: list[Cycle] = []
    for offer in cycles:
        while len(seen) < len(ready):
            seen.append(offer)
            if offer is None or ready[len(seen) - 1, offer.line]:
                break
    return seen


def payload_fields(size: int, address: int) -> dict[str, int]:
    """The fields of a command that say where its tile lies and how long it is."""
    return {"packed": int(size >= PACKED), "flits": int(flits_of(size)), "address": address}
