"""Split-K mapping: the reduction is spread over the mesh, and partial sums are added down the mesh columns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.lowering.balance import BALANCERS, Shares, even_runs, positions_in_bins
from acf.lowering.fabric_shape import SUM_BYTES, FabricShape
from acf.lowering.tiled_product import TiledProduct, row_cycles


@dataclass(frozen=True, eq=False)
class SplitKMapping:
    """The reduction over mesh rows and ``split`` groups of mesh columns; output tiles over the columns of a group.

    By output tile, int64 ``[output tiles]``: ``output_rows`` and ``output_columns``, its coordinates; ``column_of``,
    the mesh column within its group; ``round_of``, the accumulator round. ``estimated_cycles`` only ranks mappings.
    """

    split: int
    output_rows: NDArray[np.int64]
    output_columns: NDArray[np.int64]
    column_of: Shares
    round_of: NDArray[np.int64]
    estimated_cycles: float

    @classmethod
    def balanced(cls, product: TiledProduct, shape: FabricShape, split: int) -> "SplitKMapping":
        """Balance the output tiles over a group by their parallel tiles; a static fabric cuts them into even runs."""
        group_columns = shape.mesh_columns // split
        output_rows, output_columns = _output_tiles(product)
        outputs, row_tiles, column_tiles = output_rows.size, product.serial.tiles, product.parallel.tiles
        if shape.interconnect == "static":
            owners = even_runs(row_tiles * column_tiles, group_columns)
            return cls.with_owners(product, shape, split, owners[output_rows * column_tiles + output_columns])
        balancer = BALANCERS[shape.balancer]
        reads = np.zeros((outputs, row_tiles + column_tiles if balancer.uses_reads else 0), dtype=bool)
        if balancer.uses_reads:
            reads[np.arange(outputs), output_rows] = True
            reads[np.arange(outputs), row_tiles + output_columns] = True
        weights = product.present.sum(axis=1, dtype=np.int64)[output_columns]
        return cls.with_owners(product, shape, split, balancer.share(weights, reads, group_columns))

    @classmethod
    def with_owners(cls, product: TiledProduct, shape: FabricShape, split: int, column_of: Shares) -> "SplitKMapping":
        """The mapping for a known owner of every output tile: fill the accumulators of each owner round by round."""
        output_rows, output_columns = _output_tiles(product)
        if not output_rows.size:
            return cls(split, output_rows, output_columns, column_of, output_rows, float("inf"))
        round_of = positions_in_bins(column_of, shape.mesh_columns // split) // shape.accumulator_tiles
        heaviest = _heaviest_load(product, shape, split, column_of)
        merge_flits = shape.flits(shape.accumulator_tiles * shape.tile**2 * SUM_BYTES) * (1 if split == 1 else 2)
        rows_per_scu = -(-shape.tile // shape.scus_per_cluster)
        cycles = heaviest * rows_per_scu + (int(round_of.max()) + 1) * merge_flits / row_cycles(product, shape)
        return cls(split, output_rows, output_columns, column_of, round_of, cycles)

    def kept_for(self, before: TiledProduct, after: TiledProduct, shape: FabricShape) -> "SplitKMapping":
        """Output tiles that are still there stay with their cluster.

        New ones take the places of those that are gone, in order, and then the cluster that has them in a dense layer.
        """
        output_rows, output_columns = _output_tiles(after)
        column_tiles = after.parallel.tiles
        keys_before = self.output_rows * column_tiles + self.output_columns
        keys = output_rows * column_tiles + output_columns
        owner = dict(zip(keys_before.tolist(), self.column_of.tolist(), strict=True))
        gone = iter(self.column_of[~np.isin(keys_before, keys)].tolist())
        dense = even_runs(after.serial.tiles * column_tiles, shape.mesh_columns // self.split)
        column_of = [owner[key] if key in owner else next(gone, int(dense[key])) for key in keys.tolist()]
        return self.with_owners(after, shape, self.split, np.array(column_of, dtype=np.int64))

    @property
    def rounds(self) -> int:
        """Accumulator rounds; one, in which nothing is sent, where no output tile is left."""
        return int(self.round_of.max(initial=0)) + 1

    def __str__(self) -> str:
        return (
            f"split-K: the reduction over mesh rows and {self.split} groups of mesh columns, "
            f"{self.output_rows.size} output tiles in {self.rounds} rounds"
        )


def _output_tiles(product: TiledProduct) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of every output tile that is needed and not empty, in row-major order."""
    filled = product.present.any(axis=1)
    needed = np.broadcast_to(filled, (product.serial.tiles, filled.size))
    if product.needed is not None:
        needed = needed & product.needed
    output_rows, output_columns = (axis.astype(np.int64) for axis in np.nonzero(needed))
    return output_rows, output_columns


def _heaviest_load(product: TiledProduct, shape: FabricShape, split: int, column_of: Shares) -> float:
    """Pairs of output tile and parallel tile of the most loaded cluster."""
    _, output_columns = _output_tiles(product)
    k_shares = shape.mesh_rows * split
    by_k_share = np.zeros((product.parallel.tiles, k_shares), dtype=np.int64)
    np.add.at(by_k_share.T, np.arange(product.k_tiles) % k_shares, product.present.T)
    by_cluster = np.zeros((shape.mesh_columns // split, k_shares), dtype=np.int64)
    np.add.at(by_cluster, column_of, by_k_share[output_columns])
    return float(by_cluster.max())
