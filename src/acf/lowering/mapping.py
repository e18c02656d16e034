"""Which cluster owns which piece of the output, and whether tokens or the reduction are spread over mesh rows."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from acf.errors import ArchitectureError
from acf.lowering.balance import BALANCERS, Shares, even_order
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.tiled_product import TiledProduct
from acf.lowering.tiles import TiledRows

Presence = NDArray[np.bool_]
"""Which tiles of the parallel operand hold a non-zero, bool ``[parallel tiles, k_tiles]``."""

ENOUGH_TILES = 4  # of tokens for every cluster: then nothing is gained by spreading the reduction


@dataclass(frozen=True, eq=False)
class TokenMapping:
    """Output rows over mesh rows and groups of mesh columns; output columns over the columns of a group.

    ``group_of``: the mesh column within its group, ``round_of``: the filling of the accumulators, for every piece of
    output columns, -1 where it has no block. ``groups`` mesh columns share one part of the rows. ``batch`` pieces of
    rows are accumulated at a time. ``cycles`` is an estimate that only ranks mappings. ``ordered_by``: the pieces,
    bool ``[output columns, steps]``, that the order of the reduction is worked out for; None: those of the work.
    """

    groups: int
    group_of: NDArray[np.int64]
    round_of: NDArray[np.int64]
    batch: int
    cycles: float
    ordered_by: NDArray[np.bool_] | None = None

    def depth_order(self, present: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For every column round the order of the reduction that keeps clusters abreast, int64 ``[rounds, steps]``.

        ``present``: bool ``[output columns, steps]``.
        """
        present = present if self.ordered_by is None else self.ordered_by
        orders = []
        for index in range(int(self.round_of.max(initial=0)) + 1):
            loads = np.zeros((self.groups, present.shape[1]), dtype=np.int64)
            mine = self.round_of == index
            np.add.at(loads, self.group_of[mine], present[mine])
            orders.append(even_order(np.ascontiguousarray(loads.T)))
        return np.stack(orders)


@dataclass(frozen=True, eq=False)
class ReductionMapping:
    """The reduction over mesh rows and ``split`` groups of mesh columns; output pieces over the columns of a group.

    ``output_rows``, ``output_columns``, ``column_of``, ``round_of``: int64 ``[output pieces]``.
    """

    split: int
    output_rows: NDArray[np.int64]
    output_columns: NDArray[np.int64]
    column_of: NDArray[np.int64]
    round_of: NDArray[np.int64]
    cycles: float


def choose_mapping(product: TiledProduct, shape: FabricShape) -> TokenMapping | ReductionMapping:
    """The mapping with the fewest estimated cycles.

    Fewer mesh columns on a part of the tokens must be better by 3 %, for packets are shared by fewer; a reduction must
    be better by 5 %, for it sends and adds more.
    """
    if shape.balancer not in BALANCERS:
        raise ArchitectureError(
            f"balancer {shape.balancer!r} is not one of {', '.join(BALANCERS)}; use one of these names"
        )
    if shape.interconnect == "static":
        return _static_mapping(product, shape)
    return _best_mapping(product, shape)


def _best_mapping(product: TiledProduct, shape: FabricShape) -> TokenMapping | ReductionMapping:
    divisors = [count for count in range(shape.mesh_columns, 0, -1) if shape.mesh_columns % count == 0]
    tokens = [_token_mapping(product, shape, groups) for groups in divisors]
    if product.needed is None and product.serial.tiles >= ENOUGH_TILES * shape.clusters:
        reductions = []
    else:
        reductions = [_reduction_mapping(product, shape, shape.mesh_columns // groups) for groups in divisors]
    best_tokens = tokens[0]
    for mapping in tokens[1:]:
        if mapping.cycles < 0.97 * best_tokens.cycles:
            best_tokens = mapping
    best_reduction = min(reductions, key=lambda mapping: mapping.cycles, default=None)
    if best_reduction is not None and best_reduction.cycles < 0.95 * best_tokens.cycles:
        return best_reduction
    return best_tokens


def _static_mapping(product: TiledProduct, shape: FabricShape) -> TokenMapping | ReductionMapping:
    """What is spread over the mesh, and who owns what, as if every block were present."""
    full = np.full_like(product.parallel.patterns, np.iinfo(product.parallel.patterns.dtype).max)
    dense = TiledProduct(product.serial, TiledRows(full, product.parallel.tile))
    mapping = _best_mapping(dense, shape)
    if isinstance(mapping, TokenMapping):
        return _token_mapping_of(product, shape, mapping.groups, mapping.group_of, dense.present)
    return _reduction_mapping(product, shape, mapping.split)


def keep_mapping(
    mapping: TokenMapping | ReductionMapping, before: TiledProduct, after: TiledProduct, shape: FabricShape
) -> TokenMapping | ReductionMapping:
    """``mapping`` of the work ``before`` blocks moved, for the work ``after``, when nothing is shared anew.

    Output columns stay with their cluster and the reduction keeps its order. Output pieces that are still there stay
    with theirs; new ones take the places of those that are gone, in order, or the cluster of a dense layer.
    """
    if isinstance(mapping, TokenMapping):
        empty_before = ~before.present.any(axis=1)
        group_of = np.where(empty_before, _dense_groups(empty_before.size, mapping.groups), mapping.group_of)
        return _token_mapping_of(after, shape, mapping.groups, group_of, before.present)
    output_rows, output_columns = _output_pieces(after)
    tiles = after.parallel.tiles
    names_before = mapping.output_rows * tiles + mapping.output_columns
    names = output_rows * tiles + output_columns
    owner = dict(zip(names_before.tolist(), mapping.column_of.tolist(), strict=True))
    gone = iter(mapping.column_of[~np.isin(names_before, names)].tolist())
    dense = _dense_groups(after.serial.tiles * tiles, shape.mesh_columns // mapping.split)
    column_of = [owner[name] if name in owner else next(gone, int(dense[name])) for name in names.tolist()]
    return _reduction_mapping_of(after, shape, mapping.split, np.array(column_of, dtype=np.int64))


def _dense_groups(columns: int, groups: int) -> Shares:
    """Equal runs of neighbours: who owns what in a dense layer."""
    return np.arange(columns, dtype=np.int64) * groups // max(1, columns)


def _share(weights: NDArray[np.int64], touches: NDArray[np.bool_], bins: int, shape: FabricShape) -> Shares:
    return BALANCERS[shape.balancer].share(weights, touches, bins)


def _token_mapping(product: TiledProduct, shape: FabricShape, groups: int) -> TokenMapping:
    present = product.present
    weights = present.sum(axis=1, dtype=np.int64)
    if shape.interconnect == "static":
        return _token_mapping_of(product, shape, groups, _dense_groups(weights.size, groups))
    group_of, filled = np.zeros(weights.size, dtype=np.int64), np.flatnonzero(weights)
    group_of[filled] = _share(weights[filled], present[filled], groups, shape)
    return _token_mapping_of(product, shape, groups, group_of)


def _token_mapping_of(
    product: TiledProduct,
    shape: FabricShape,
    groups: int,
    group_of: Shares,
    ordered_by: NDArray[np.bool_] | None = None,
) -> TokenMapping:
    """The mapping when it is known which mesh column of its group owns every output column."""
    weights = product.present.sum(axis=1, dtype=np.int64)
    columns = weights.size
    filled = np.flatnonzero(weights)
    round_of = np.full(columns, -1, dtype=np.int64)
    position = _positions(group_of[filled], groups)
    most = int(position.max()) + 1 if filled.size else 1
    rounds = -(-most // shape.accumulator_tiles)
    per_round = -(-most // rounds)
    round_of[filled] = position // per_round
    parts = shape.mesh_rows * (shape.mesh_columns // groups)
    if product.needed is None:
        heaviest = float(np.bincount(group_of, weights, groups).max()) if columns else 0.0
        cycles = heaviest * ceil(ceil(product.serial.rows / parts) / shape.scus_per_cluster)
    else:
        part_of = np.arange(product.serial.tiles) % parts
        by_part = np.zeros((parts, columns))
        np.add.at(by_part, part_of, product.needed * weights)
        by_cluster = np.zeros((groups, parts))
        np.add.at(by_cluster, group_of, by_part.T)
        cycles = float(by_cluster.max()) * -(-shape.tile // shape.scus_per_cluster) if columns else 0.0
    return TokenMapping(groups, group_of, round_of, shape.accumulator_tiles // per_round, cycles, ordered_by)


def _output_pieces(product: TiledProduct) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of every output piece that is needed and not empty, by row."""
    filled = product.present.any(axis=1)
    needed = np.broadcast_to(filled, (product.serial.tiles, filled.size))
    if product.needed is not None:
        needed = needed & product.needed
    output_rows, output_columns = (axis.astype(np.int64) for axis in np.nonzero(needed))
    return output_rows, output_columns


def _reduction_mapping(product: TiledProduct, shape: FabricShape, split: int) -> ReductionMapping:
    groups = shape.mesh_columns // split
    output_rows, output_columns = _output_pieces(product)
    pieces, tiles = output_rows.size, product.parallel.tiles
    if shape.interconnect == "static":
        column_of = _dense_groups(product.serial.tiles * tiles, groups)[output_rows * tiles + output_columns]
    else:
        touches = np.zeros((pieces, 0), dtype=bool)
        if BALANCERS[shape.balancer].reads_touches:
            touches = np.zeros((pieces, product.serial.tiles + tiles), dtype=bool)
            touches[np.arange(pieces), output_rows] = True
            touches[np.arange(pieces), product.serial.tiles + output_columns] = True
        column_of = _share(product.present.sum(axis=1, dtype=np.int64)[output_columns], touches, groups, shape)
    return _reduction_mapping_of(product, shape, split, column_of)


def _reduction_mapping_of(product: TiledProduct, shape: FabricShape, split: int, column_of: Shares) -> ReductionMapping:
    """The mapping when it is known which mesh column of its group owns every output piece."""
    groups = shape.mesh_columns // split
    output_rows, output_columns = _output_pieces(product)
    if not output_rows.size:
        return ReductionMapping(split, output_rows, output_columns, column_of, output_rows, float("inf"))
    round_of = _positions(column_of, groups) // shape.accumulator_tiles
    steps, spread = product.k_tiles, shape.mesh_rows * split
    by_place = np.zeros((product.parallel.tiles, spread), dtype=np.int64)  # blocks that each share of the reduction has
    np.add.at(by_place.T, np.arange(steps) % spread, product.present.T)
    by_cluster = np.zeros((groups, spread), dtype=np.int64)
    np.add.at(by_cluster, column_of, by_place[output_columns])
    heaviest = float(by_cluster.max())
    merge = shape.flits(shape.accumulator_tiles * shape.tile**2 * 4) * (1 if split == 1 else 2)
    density = product.serial.nonzeros / max(1, product.serial.rows * steps * shape.tile)
    row_cycles = max(1.0, density * shape.tile) * shape.tile / shape.lanes
    rows = -(-shape.tile // shape.scus_per_cluster)
    cycles = heaviest * rows + (int(round_of.max()) + 1) * merge / row_cycles
    return ReductionMapping(split, output_rows, output_columns, column_of, round_of, cycles)


def _positions(bins_of: Shares, bins: int) -> NDArray[np.int64]:
    """For every item its place among those of its bin, in order of index."""
    positions = np.zeros(bins_of.size, dtype=np.int64)
    for index in range(bins):
        mine = np.flatnonzero(bins_of == index)
        positions[mine] = np.arange(mine.size)
    return positions
