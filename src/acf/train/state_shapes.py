"""What an optimizer's state tensor has to do with the blocks of a packed weight, decided by shapes alone."""

from collections.abc import Sequence
from enum import Enum
from itertools import combinations
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class SlotRelation(Enum):
    """How a state tensor relates to the slots of a packed weight ``[nnz, height, width]``."""

    PER_SLOT = "one part per block"
    SHARED = "shared by all blocks"
    MIXED = "couples blocks with each other"


def possible_relations(state: Shape, packed: Shape) -> frozenset[SlotRelation]:
    """Every relation that a state of this shape may have to a weight of shape ``packed``; empty where it has none.

    Per slot are the shape itself, its reductions over height and width with or without the reduced axes (Adafactor,
    CAME), and the same flattened from the left (Prodigy). Shared are shapes without ``nnz`` (SM3, the factors of a
    Kronecker preconditioner over height and width). A square matrix over slots (Shampoo, SOAP) couples blocks.

    >>> sorted(relation.name for relation in possible_relations((12, 4), (12, 4, 8)))
    ['PER_SLOT']
    >>> sorted(relation.name for relation in possible_relations((4, 4), (4, 4, 8)))
    ['MIXED', 'PER_SLOT', 'SHARED']
    """
    slots, height, width = packed
    if state == packed:
        return frozenset({SlotRelation.PER_SLOT})
    if prod(state) == 1:
        return frozenset({SlotRelation.SHARED})
    block = height * width
    shapes = {
        SlotRelation.PER_SLOT: {
            *((slots, *rest) for rest in ((height, 1), (1, width), (1, 1), (height,), (width,), (block,), (1,), ())),
            *((slots * height, *rest) for rest in ((width,), (1,), ())),
            *((slots * block, *rest) for rest in ((1,), ())),
        },
        SlotRelation.SHARED: {
            *((height,), (width,), (block,), (height, width), (1, width), (1, block)),
            *((1, height, width), (1, height, 1), (1, 1, width)),
            *((size, size) for size in (height, width, block)),
        },
        SlotRelation.MIXED: {(size, size) for size in (slots, slots * height, slots * block)},
    }
    return frozenset(relation for relation, members in shapes.items() if state in members)


class StateShape(NamedTuple):
    """The shape of one entry of a parameter's state, and whether the parameter is a packed weight."""

    state: Shape
    parameter: Shape
    is_packed: bool


def remaining_relations(shapes: Sequence[StateShape]) -> list[frozenset[SlotRelation]]:
    """The relations that remain possible for one entry of the state, over all parameters that have it.

    One name means one thing in all layers, so what is possible in one layer only is a coincidence of sizes: a state
    ``[16, 16]`` of 16 blocks of 16x16 is per slot if a layer of 20 blocks has ``[20, 16]``. Likewise, an entry that has
    the same shape for every parameter is shared. Parameters that are not packed have no relation.
    """
    if _is_constant(shapes):
        return [frozenset({SlotRelation.SHARED})] * len(shapes)
    possible = [possible_relations(each.state, each.parameter) if each.is_packed else None for each in shapes]
    common = frozenset(SlotRelation).intersection(*filter(None, possible))
    return [frozenset() if own is None else (own & common) or own for own in possible]


def _is_constant(shapes: Sequence[StateShape]) -> bool:
    """Whether parameters of very different sizes have the same state, which not all of their shapes could give."""
    sizes = [prod(each.parameter) for each in shapes]
    if len({each.state for each in shapes}) != 1 or max(sizes) < 2 * min(sizes):
        return False
    return any(not _derives(each.state, each.parameter) for each in shapes)


def _derives(state: Shape, parameter: Shape) -> bool:
    """Whether every size of ``state`` is a product of some sizes of ``parameter``."""
    counts = range(len(parameter) + 1)  # the product of no size is 1
    products = {prod(chosen) for count in counts for chosen in combinations(parameter, count)}
    return all(size in products for size in state)
