"""Output-stationary mapping: a cluster owns output tiles and computes their whole reduction."""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from acf.lowering.balance import BALANCERS, Shares, even_order, even_runs, positions_in_bins
from acf.lowering.fabric_shape import FabricShape
from acf.lowering.tiled_product import Presence, TiledProduct


@dataclass(frozen=True, eq=False)
class OutputStationaryMapping:
    """Output rows over mesh rows and groups of mesh columns; output columns over the mesh columns of a group.

    A group has ``group_columns`` mesh columns. By output column tile: ``column_of``, the mesh column within its group,
    and ``round_of``, the accumulator round, -1 where the column is empty. A round accumulates ``row_tiles_per_round``
    serial tiles at a time. ``estimated_cycles`` only ranks mappings. ``ordered_for``: the presence of parallel tiles
    that the order of the reduction balances; None: that of the product.
    """

    group_columns: int
    column_of: Shares
    round_of: NDArray[np.int64]
    row_tiles_per_round: int
    estimated_cycles: float
    ordered_for: Presence | None = None

    @classmethod
    def balanced(cls, product: TiledProduct, shape: FabricShape, group_columns: int) -> "OutputStationaryMapping":
        """Balance the output columns over a group by their parallel tiles; a static fabric cuts them into even runs."""
        present = product.present
        weights = present.sum(axis=1, dtype=np.int64)
        if shape.interconnect == "static":
            column_of = even_runs(weights.size, group_columns)
        else:
            column_of, filled = np.zeros(weights.size, dtype=np.int64), np.flatnonzero(weights)
            column_of[filled] = BALANCERS[shape.balancer].share(weights[filled], present[filled], group_columns)
        return cls.with_owners(product, shape, group_columns, column_of)

    @classmethod
    def with_owners(
        cls,
        product: TiledProduct,
        shape: FabricShape,
        group_columns: int,
        column_of: Shares,
        ordered_for: Presence | None = None,
    ) -> "OutputStationaryMapping":
        """The mapping for a known owner of every output column: fill the accumulators of each owner round by round."""
        weights = product.present.sum(axis=1, dtype=np.int64)
        filled = np.flatnonzero(weights)
        round_of = np.full(weights.size, -1, dtype=np.int64)
        position = positions_in_bins(column_of[filled], group_columns)
        most = int(position.max()) + 1 if filled.size else 1
        rounds = -(-most // shape.accumulator_tiles)
        columns_per_round = -(-most // rounds)
        round_of[filled] = position // columns_per_round
        row_tiles_per_round = shape.accumulator_tiles // columns_per_round
        cycles = _estimated_cycles(product, shape, group_columns, column_of) if weights.size else 0.0
        return cls(group_columns, column_of, round_of, row_tiles_per_round, cycles, ordered_for)

    def kept_for(self, before: TiledProduct, after: TiledProduct, shape: FabricShape) -> "OutputStationaryMapping":
        """Output columns stay with their cluster and the reduction keeps its order."""
        was_empty = ~before.present.any(axis=1)
        column_of = np.where(was_empty, even_runs(was_empty.size, self.group_columns), self.column_of)
        return self.with_owners(after, shape, self.group_columns, column_of, before.present)

    @property
    def column_rounds(self) -> int:
        """Accumulator rounds over the output columns."""
        return int(self.round_of.max(initial=0)) + 1

    def row_parts(self, shape: FabricShape) -> int:
        """Parts of the output rows: one per mesh row and group of mesh columns."""
        return shape.mesh_rows * (shape.mesh_columns // self.group_columns)

    def k_orders(self, present: Presence) -> NDArray[np.int64]:
        """For every column round the order of the k_tiles that keeps clusters in step, int64 ``[rounds, k_tiles]``."""
        present = present if self.ordered_for is None else self.ordered_for
        orders = []
        for index in range(self.column_rounds):
            loads = np.zeros((self.group_columns, present.shape[1]), dtype=np.int64)
            mine = self.round_of == index
            np.add.at(loads, self.column_of[mine], present[mine])
            orders.append(even_order(np.ascontiguousarray(loads.T)))
        return np.stack(orders)

    def __str__(self) -> str:
        return (
            f"output-stationary: output columns over groups of {self.group_columns} mesh columns in "
            f"{self.column_rounds} rounds, {self.row_tiles_per_round} row tiles a round"
        )


def _estimated_cycles(product: TiledProduct, shape: FabricShape, group_columns: int, column_of: Shares) -> float:
    """Parallel tiles times serial rows of the most loaded cluster, in rows per SCU."""
    weights = product.present.sum(axis=1, dtype=np.int64)
    parts = shape.mesh_rows * (shape.mesh_columns // group_columns)
    if product.needed is None:
        heaviest = float(np.bincount(column_of, weights, group_columns).max())
        return heaviest * ceil(ceil(product.serial.rows / parts) / shape.scus_per_cluster)
    by_part = np.zeros((parts, weights.size))
    np.add.at(by_part, np.arange(product.serial.tiles) % parts, product.needed * weights)
    by_cluster = np.zeros((group_columns, parts))
    np.add.at(by_cluster, column_of, by_part.T)
    return float(by_cluster.max()) * -(-shape.tile // shape.scus_per_cluster)
