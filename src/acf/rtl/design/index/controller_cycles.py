"""`IndexController` cycle by cycle: the commands it offers, from descriptor and index alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.lowering.product_index import SIZES_PER_WORD
from acf.rtl.design.fabric.encoding import pack_fields
from acf.rtl.design.fabric.sizes import ROUND_BITS
from acf.rtl.design.index.controller_model import Batch, Block, Index, Owner, read_index
from acf.rtl.design.index.controller_packet import Mesh, Words
from acf.rtl.design.index.index_controller import IndexSizes
from acf.rtl.design.index.offers import Cycle, Offer, payload_fields
from acf.rtl.design.index.split_k_cycles import split_k_cycles
from acf.rtl.design.index.split_k_model import SplitKIndex
from acf.rtl.design.mesh.route_planner import PlannerSpec
from acf.rtl.design.mesh.route_planner_model import planner_cycles

Cluster = tuple[int, int]
"""Mesh row and mesh column."""


def controller_cycles(memory: Words, sizes: IndexSizes, number: int = 0) -> Iterator[Cycle]:
    """What the controller offers in every cycle after ``start``; an offer is repeated by whoever drives it.

    ``number``: which of the controllers that share the product it is.
    """
    shape = sizes.fabric.shape
    index = read_index(memory, Mesh(shape.mesh_rows, shape.mesh_columns))
    if isinstance(index, SplitKIndex):
        return split_k_cycles(index, sizes, number)
    return _Controller(index, sizes, number).cycles()


def commands_of(memory: Words, sizes: IndexSizes) -> list[list[int]]:
    """The command words of every line in order; what an adder skips is told by the command behind, as a host does."""
    shape = sizes.fabric.shape
    lines: list[list[int]] = [[] for _ in range(shape.mesh_rows + shape.mesh_columns)]
    gaps = [0] * len(lines)
    for number in range(sizes.sharing):
        for offer in controller_cycles(memory, sizes, number):
            if not isinstance(offer, Offer):
                continue
            if offer.is_gap:
                gaps[offer.line] += offer.word
            else:
                lines[offer.line].append(offer.word + gaps[offer.line])
                gaps[offer.line] = 0
    return lines


class _Controller:
    def __init__(self, index: Index, sizes: IndexSizes, number: int) -> None:
        self.index, self.sizes, self.described = index, sizes, index.descriptor
        self.number = number
        self.fabric, self.mesh = sizes.fabric, index.mesh
        self.owners: dict[int, Owner] = index.owners()
        self.group_columns = self.described.group_columns
        self.parts = [
            (row, group) for row in range(self.mesh.rows) for group in range(0, self.mesh.columns, self.group_columns)
        ]
        self.own_parts = [part for part in self.parts if sizes.share_of(part[0]) == number]
        own_rows = range(number, self.mesh.rows, sizes.sharing)
        self.rounds = dict.fromkeys(((row, place) for row in own_rows for place in range(self.mesh.columns)), 0)
        self.visit_cycles = 1 if self.described.direct else 2

    def cycles(self) -> Iterator[Cycle]:
        """Set-up, then every round twice."""
        described = self.described
        cleared = described.column_tiles if described.masked else described.column_rounds
        set_up = DESCRIPTOR_WORDS + 1 + 1 + described.blocks + 2 + cleared
        yield from [None] * (set_up + self._owner_cycles() + 1)
        for column_round in range(described.column_rounds):
            for row_round in range(described.row_rounds):
                yield from [None] * (3 + self._mask_cycles(column_round))  # ROUND, STEPS, ORDER
                yield from self._round(column_round, row_round)

    def _mask_cycles(self, column_round: int) -> int:
        """Every column, and for those of the round a bit of every row tile of every part."""
        described = self.described
        if not described.masked:
            return 0
        mine = sum(owner.round == column_round for owner in self.owners.values())
        return described.column_tiles + mine * (1 + len(self.parts) * described.row_tiles)

    def _owner_cycles(self) -> int:
        described = self.described
        if described.policy == "stored":
            return described.column_tiles + 1
        present = np.zeros((described.column_tiles, self.sizes.depths), dtype=bool)
        for k_tile in range(described.k_tiles):
            present[[block.column for block in self.index.blocks(k_tile)], k_tile] = True
        filled = present[present.any(axis=1)]
        spec = PlannerSpec(self.mesh.columns, 1, self.sizes.column_tiles, self.sizes.depths, 0, self.sizes.column_tiles)
        walk = (
            2 + 2 * described.k_tiles + self.visit_cycles * described.blocks
        )  # LINE and FETCH, but for the first line
        planned = len(planner_cycles(spec, filled, described.policy))
        return 1 + described.column_tiles + walk + described.column_tiles + planned + max(1, len(filled))

    def _round(self, column_round: int, row_round: int) -> Iterator[Cycle]:
        order = self.index.order(column_round)
        steps = [self._k_step(column_round, row_round, k_tile) for k_tile in order]
        last: dict[Cluster, int] = {}
        owners = {owner.mesh_column for owner in self.owners.values() if owner.round == column_round}
        missing = {cluster for cluster in self.rounds if cluster[1] % self.group_columns in owners}
        for place, step in reversed(list(enumerate(steps))):
            yield from [None] * (self._scan_cycles() + self.visit_cycles * step.visited + 1)
            last |= dict.fromkeys((cluster for cluster in missing if step.met(cluster)), place)
            missing -= set(last)
            if not missing:
                break
        for place, step in enumerate(steps):
            closing = {cluster for cluster, at in last.items() if at == place}
            yield from self._emit(step, closing)
        for cluster in last:
            self.rounds[cluster] += 1

    def _k_step(self, column_round: int, row_round: int, k_tile: int) -> "_KStep":
        batches = {part: self.index.batch(row_round, k_tile, number) for number, part in enumerate(self.parts)}
        visited = self.index.blocks(k_tile)
        mine = [each if self.owners[each.column].round == column_round else None for each in visited]
        kept: dict[Cluster, list[tuple[Block, list[int]]]] = {}
        for number, (row, group) in enumerate(self.parts):
            for block in filter(None, mine):
                first = row_round * self.described.row_tiles
                rows = [(first + tile) * len(self.parts) + number for tile in range(len(batches[row, group].sizes))]
                tiles = [
                    tile
                    for tile, size in enumerate(batches[row, group].sizes)
                    if size and self.index.is_needed(rows[tile], block.column)
                ]
                place = group + self.owners[block.column].mesh_column
                if tiles:
                    kept.setdefault((row, place), []).append((block, tiles))
        return _KStep(column_round, batches, mine, kept)

    def _scan_cycles(self) -> int:
        """The k_tile, its mesh rows with data (with a mask all sizes of all parts), and its two offsets."""
        words = self.index.live_words
        if self.described.masked:
            words = len(self.parts) * -(-self.described.row_tiles // SIZES_PER_WORD)
        return 1 + 1 + words + 2

    def _emit(self, step: "_KStep", closing: set[Cluster]) -> Iterator[Cycle]:
        """Blocks, then serial tiles part by part; ``closing``: clusters whose round ends in this k_step."""
        yield from [None] * self._scan_cycles()
        for block in step.blocks:
            yield from [None] * (self.visit_cycles - 1)
            yield from self._block_offers(step, block) or [None]
        for row, group in self.own_parts:
            yield None  # PART
            clusters = [(row, group + column) for column in range(self.group_columns)]
            if any(step.met(cluster) for cluster in clusters):
                yield None  # SIZES
                yield from self._part(step, step.batches[row, group], clusters, closing)
        yield None  # NEXT

    def _block_offers(self, step: "_KStep", block: Block | None) -> list[Cycle]:
        """A cycle for every own mesh column that stores the block, with a command if a mesh row uses it there."""
        if block is None:
            return []
        first = self.owners[block.column].mesh_column
        places = range(first, self.mesh.columns, self.group_columns)
        return [
            self._block_offer(step, block, place)
            for place in places
            if self.sizes.share_of(self.mesh.rows + place) == self.number
        ]

    def _block_offer(self, step: "_KStep", block: Block, place: int) -> Cycle:
        rows = range(self.mesh.rows)
        users = sum(1 << row for row in rows if any(each is block for each, _ in step.met((row, place))))
        if not users:
            return None
        fields = {"parallel": 1, **payload_fields(block.size, block.address), "destinations": users}
        fields["transposed"] = int(self.described.parallel_transposed)
        return Offer(self.mesh.rows + place, pack_fields(self.fabric.command(self.mesh.rows, serial=False), fields))

    def _part(self, step: "_KStep", batch: Batch, clusters: list[Cluster], closing: set[Cluster]) -> Iterator[Cycle]:
        layout, size = self.fabric.command(self.mesh.columns, serial=True), self.fabric.header.size
        for tile in range(batch.last):
            headers, destinations = 0, 0
            for cluster in clusters:
                if any(tile in tiles for _, tiles in step.met(cluster)):
                    fields = self._header(step, tile, batch, cluster)
                    fields["last_of_round"] = int(fields["last_of_k_step"] and cluster in closing)
                    headers |= pack_fields(self.fabric.header, fields) << size * cluster[1]
                    destinations |= 1 << cluster[1]
            if not destinations:
                yield None
                continue
            fields = {**payload_fields(batch.sizes[tile], batch.addresses[tile]), "destinations": destinations}
            fields["transposed"] = int(self.described.serial_transposed)
            yield Offer(clusters[0][0], pack_fields(layout, fields | {"headers": headers}))

    def _header(self, step: "_KStep", tile: int, batch: Batch, cluster: Cluster) -> dict[str, int]:
        met = step.met(cluster)
        owner = self.owners[met[0][0].column]
        owned = sum(
            each.round == step.column_round and each.mesh_column == owner.mesh_column for each in self.owners.values()
        )
        columns = [block.column for block, _ in met]
        has_edge = not self.fabric.skips_both and self.described.column_tiles - 1 in columns
        ranks = [rank for rank, (_, tiles) in enumerate(met) if tile in tiles]
        return {
            "blocks": sum(1 << rank for rank in ranks),
            "sums": sum(1 << tile * owned + self.owners[columns[rank]].place for rank in ranks),
            "count": len(met),
            "edge_valid": int(has_edge),
            "edge": columns.index(self.described.column_tiles - 1) if has_edge else 0,
            "round": self.rounds[cluster] % 2**ROUND_BITS,
            "last_of_k_step": int(all(later <= tile for _, tiles in met for later in tiles)),
            "tiles": batch.tiles * owned,
        }


@dataclass(frozen=True)
class _KStep:
    """``blocks`` of a k_tile as they are visited, None where one is of another round; ``batches`` by part.

    ``kept``: by cluster the blocks that it stores, in order of arrival, each with the row tiles that it meets.
    """

    column_round: int
    batches: dict[tuple[int, int], Batch]
    blocks: list[Block | None]
    kept: dict[Cluster, list[tuple[Block, list[int]]]]

    @property
    def visited(self) -> int:
        """Blocks of the k_tile."""
        return len(self.blocks)

    def met(self, cluster: Cluster) -> list[tuple[Block, list[int]]]:
        """What a cluster stores and meets."""
        return self.kept.get(cluster, [])
