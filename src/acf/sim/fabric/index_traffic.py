"""What walking a product's index costs: bytes that cross the pins, bytes read on chip, cycles of the controller.

The counts are those of the index of `acf.lowering.product_index` and of the controller in gates (`acf.rtl`,
`controller_cycles`), which walks each round twice. Several controllers share the mesh rows of a product: each walks all
blocks, but makes the commands of its own rows. Of a masked product, the cycles in which the gates read mask and sizes
before a round are not counted. A split-K product has no controller in gates yet; its cycles assume one that compares an
output tile per cycle and mesh row.
"""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from acf.lowering import FabricShape, Program
from acf.lowering.descriptor import DESCRIPTOR_BYTES, DESCRIPTOR_WORDS, WORD_BYTES
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import SIZES_PER_WORD, batch_words
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct


@dataclass(frozen=True)
class IndexTraffic:
    """``fetched_bytes``: descriptor and mapping, read from DRAM for every run of a product; the index of an operand is
    part of what `stored_bytes` says of its tensor. ``walked_bytes``: reads of the index on chip. ``set_up_cycles``:
    until the first command, with the descriptor on chip. ``walk_cycles``: from the start of the first controller to the
    end of the last. ``controllers``: how many walk at the same time.
    """

    fetched_bytes: int
    walked_bytes: int
    set_up_cycles: int
    walk_cycles: int
    controllers: int = 1

    def times(self, products: int, controllers: int) -> "IndexTraffic":
        """That of several such products, walked by so many ``controllers``; commands begin when the first is set up."""
        return IndexTraffic(
            self.fetched_bytes * products,
            self.walked_bytes * products,
            self.set_up_cycles,
            self.walk_cycles * -(-products // controllers),
            min(products, controllers),
        )


NO_INDEX = IndexTraffic(0, 0, 0, 0)


@singledispatch
def index_traffic(
    mapping: Mapping, product: TiledProduct, program: Program, shape: FabricShape, controllers: int = 1
) -> IndexTraffic:
    """The traffic of ``product`` under ``mapping``, its mesh rows shared by so many ``controllers``."""
    raise NotImplementedError(type(mapping).__name__)


@index_traffic.register
def _(
    mapping: OutputStationaryMapping,
    product: TiledProduct,
    program: Program,
    shape: FabricShape,
    controllers: int = 1,
) -> IndexTraffic:
    blocks, columns = int(product.present.sum()), product.parallel.tiles
    parts, row_rounds = mapping.row_parts(shape), program.rounds // mapping.column_rounds
    sharing = min(controllers, shape.mesh_rows)
    own_parts = -(-parts // sharing)
    mask = 0 if product.needed is None else product.serial.tiles * -(-columns // 32)
    mapping_words = columns + mapping.column_rounds * (1 + product.k_tiles) + mask
    k_steps, visits, first_steps, first_visits = _visits(mapping, product)
    set_up = DESCRIPTOR_WORDS + blocks + mapping.column_rounds + columns + 6
    own_batches = row_rounds * k_steps * own_parts
    packets = -(-(program.rows.packets + program.columns.packets) // sharing)
    fours = -(-mapping.row_tiles_per_round // SIZES_PER_WORD)
    read_by_each = DESCRIPTOR_WORDS + blocks + columns + 2 * row_rounds * (3 * k_steps + 2 * visits)
    counts_and_sizes = row_rounds * k_steps * parts * (2 + batch_words(mapping.row_tiles_per_round))
    return IndexTraffic(
        fetched_bytes=DESCRIPTOR_BYTES + WORD_BYTES * mapping_words,
        walked_bytes=WORD_BYTES * (sharing * read_by_each + counts_and_sizes),
        set_up_cycles=set_up + first_steps * (8 + own_parts) + 3 * first_visits,
        walk_cycles=set_up
        + 2 * row_rounds * (k_steps * (8 + own_parts) + 3 * visits)
        + own_batches * (3 + fours)
        + packets,
    )


def _visits(mapping: OutputStationaryMapping, product: TiledProduct) -> tuple[int, int, int, int]:
    """K_steps over all column rounds, blocks visited in them, and both of the first round alone.

    A k_tile is visited in a round only if it holds a block of that round, but then all its blocks are.
    """
    by_k_tile = product.present.sum(axis=0, dtype=np.int64)
    used = [product.present[mapping.round_of == number].any(axis=0) for number in range(mapping.column_rounds)]
    steps, visits = [int(each.sum()) for each in used], [int(by_k_tile[each].sum()) for each in used]
    return sum(steps), sum(visits), steps[0], visits[0]


@index_traffic.register
def _(
    mapping: SplitKMapping, product: TiledProduct, program: Program, shape: FabricShape, controllers: int = 1
) -> IndexTraffic:
    k_tiles, blocks, outputs = product.k_tiles, int(product.present.sum()), mapping.output_rows.size
    sharing = min(controllers, shape.mesh_rows)
    first_flits = k_tiles if sharing > 1 else 0  # of every k_tile, so that each controller adds up only its own
    walk_words = mapping.rounds * (2 * k_tiles + 2 * blocks + k_tiles * batch_words(product.serial.tiles))
    compared = k_tiles * outputs  # by every mesh row and group for its own k_tiles, all at once
    at_once = min(k_tiles, shape.mesh_rows * mapping.split)
    set_up = DESCRIPTOR_WORDS + -(-blocks // sharing) + 6
    return IndexTraffic(
        fetched_bytes=DESCRIPTOR_BYTES + WORD_BYTES * (2 * outputs + mapping.rounds + 1 + first_flits),
        walked_bytes=WORD_BYTES * (sharing * DESCRIPTOR_WORDS + blocks + first_flits + walk_words + 2 * compared),
        set_up_cycles=set_up + 3 * -(-blocks // max(1, k_tiles)),
        walk_cycles=set_up + int(np.ceil((walk_words + compared) / at_once)) + program.rows.packets // at_once,
    )
