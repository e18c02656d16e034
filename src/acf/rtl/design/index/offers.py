"""What a controller offers to the lines of the fabric, cycle by cycle."""

from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True)
class Meeting:
    """A controller waits until all that share its product wait."""


Cycle = Offer | Meeting | None


_END = Meeting()
"""Behind the last cycle."""


def played_against(controllers: Sequence[Iterator[Cycle]], ready: np.ndarray) -> list[list[Offer | None]]:
    """The offers of controllers of one product, cycle by cycle, where line n takes one in the cycles of ``ready``.

    ``ready [cycles, lines]``. None stands for a cycle without an offer.
    """
    current = {number: next(cycles, _END) for number, cycles in enumerate(controllers)}
    seen: list[list[Offer | None]] = [[] for _ in controllers]
    for lines in ready:
        walking = [number for number, cycle in current.items() if cycle is not _END]
        all_wait = all(isinstance(current[number], Meeting) for number in walking)
        for number in walking:
            cycle = current[number]
            offer = cycle if isinstance(cycle, Offer) else None
            seen[number].append(offer)
            if lines[offer.line] if offer else all_wait or cycle is None:
                current[number] = next(controllers[number], _END)
    return seen


def payload_fields(size: int, address: int) -> dict[str, int]:
    """The fields of a command that say where its tile lies and how long it is."""
    return {"packed": int(size >= PACKED), "flits": int(flits_of(size)), "address": address}
