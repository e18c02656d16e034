"""What walking a product's index costs: bytes that cross the pins, bytes read on chip, cycles of the controllers.

The counts are those of the index of `acf.lowering.product_index` and of the controllers in gates
(`acf.rtl.design.index`), which take exactly these cycles while no line makes them wait. Several controllers share the
mesh rows and mesh columns of a product.
"""

from dataclasses import dataclass
from functools import singledispatch

from acf.lowering import FabricShape
from acf.lowering.descriptor import DESCRIPTOR_BYTES, DESCRIPTOR_WORDS, WORD_BYTES
from acf.lowering.mapping import Mapping
from acf.lowering.output_stationary import OutputStationaryMapping
from acf.lowering.product_index import live_words, split_k_batch_words
from acf.lowering.split_k import SplitKMapping
from acf.lowering.tiled_product import TiledProduct
from acf.sim.fabric.output_stationary_walk import output_stationary_walk
from acf.sim.fabric.split_k_walk import split_k_walk


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


def sharing_controllers(shape: FabricShape, controllers: int) -> int:
    """How many of so many controllers can share a product: each has a mesh row and a mesh column at least."""
    return min(controllers, shape.mesh_rows, shape.mesh_columns)


@singledispatch
def index_traffic(mapping: Mapping, product: TiledProduct, shape: FabricShape, controllers: int = 1) -> IndexTraffic:
    """The traffic of ``product`` under ``mapping``, its lines shared by so many ``controllers``."""
    raise NotImplementedError(type(mapping).__name__)


@index_traffic.register
def _(
    mapping: OutputStationaryMapping, product: TiledProduct, shape: FabricShape, controllers: int = 1
) -> IndexTraffic:
    sharing, columns = sharing_controllers(shape, controllers), product.parallel.tiles
    walk = output_stationary_walk(mapping, product, shape)
    mask = 0 if product.needed is None else product.serial.tiles * -(-columns // 32)
    live = walk.k_steps * live_words(mapping, shape)
    mapping_words = columns + mapping.column_rounds * (1 + product.k_tiles) + mask + live
    looked = walk.look_back_cycles(sharing)  # a word in each at most
    return IndexTraffic(
        fetched_bytes=DESCRIPTOR_BYTES + WORD_BYTES * mapping_words,
        walked_bytes=WORD_BYTES * (sharing * walk.read_words + looked + walk.part_words),
        set_up_cycles=walk.set_up_cycles(sharing),
        walk_cycles=max(walk.cycles(number, sharing, shape) for number in range(sharing)),
    )


@index_traffic.register
def _(mapping: SplitKMapping, product: TiledProduct, shape: FabricShape, controllers: int = 1) -> IndexTraffic:
    sharing, outputs = sharing_controllers(shape, controllers), mapping.output_rows.size
    walk = split_k_walk(mapping, product, shape)
    batch = split_k_batch_words(product.parallel.tiles, product.serial.tiles)
    read_by_each = DESCRIPTOR_WORDS + 1 + 2 * (mapping.rounds + outputs)
    made = batch * walk.works.size + (batch - 2) * int(walk.works.sum() + walk.scans)
    return IndexTraffic(
        fetched_bytes=DESCRIPTOR_BYTES + WORD_BYTES * (2 * outputs + mapping.rounds + 2 + 2 * product.k_tiles),
        walked_bytes=WORD_BYTES * (sharing * read_by_each + made),
        set_up_cycles=walk.set_up_cycles(sharing, shape),
        walk_cycles=walk.cycles(sharing, shape),
    )
