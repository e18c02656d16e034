"""`IndexController` cycle by cycle: the commands it offers, from descriptor and index alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.lowering.product_index import PACKED, SIZES_PER_WORD, flits_of
from acf.rtl.design.fabric.encoding import pack_fields
from acf.rtl.design.fabric.sizes import ROUND_BITS
from acf.rtl.design.index.controller_model import Batch, Block, Index, Mesh, Owner, Words
from acf.rtl.design.index.index_controller import IndexSizes
from acf.rtl.design.mesh.route_planner import PlannerSpec
from acf.rtl.design.mesh.route_planner_model import planner_cycles


@dataclass(frozen=True)
class Offer:
    """A command for a line; it is offered until the line takes it."""

    line: int
    word: int


Cycle = Offer | None


def controller_cycles(memory: Words, sizes: IndexSizes) -> Iterator[Cycle]:
    """What the controller offers in every cycle after ``start``; an offer is repeated by whoever drives it."""
    shape = sizes.fabric.shape
    index = Index.read(memory, Mesh(shape.mesh_rows, shape.mesh_columns))
    return _Controller(index, sizes).cycles()


def played_against(cycles: Iterator[Cycle], ready: np.ndarray) -> list[Cycle]:
    """The offers cycle by cycle where line n takes one in the cycles of ``ready [cycles, lines]``."""
    seen: list[Cycle] = []
    for offer in cycles:
        while len(seen) < len(ready):
            seen.append(offer)
            if offer is None or ready[len(seen) - 1, offer.line]:
                break
    return seen


def commands_of(memory: Words, sizes: IndexSizes) -> list[list[int]]:
    """The command words of every line in order."""
    shape = sizes.fabric.shape
    lines: list[list[int]] = [[] for _ in range(shape.mesh_rows + shape.mesh_columns)]
    for offer in controller_cycles(memory, sizes):
        if offer is not None:
            lines[offer.line].append(offer.word)
    return lines


class _Controller:
    def __init__(self, index: Index, sizes: IndexSizes) -> None:
        self.index, self.sizes, self.described = index, sizes, index.descriptor
        self.fabric, self.mesh = sizes.fabric, index.mesh
        self.owners: dict[int, Owner] = index.owners()
        self.group_columns = self.described.group_columns
        self.parts = [
            (row, group) for row in range(self.mesh.rows) for group in range(0, self.mesh.columns, self.group_columns)
        ]
        self.rounds = dict.fromkeys(
            ((row, place) for row in range(self.mesh.rows) for place in range(self.mesh.columns)), 0
        )

    def cycles(self) -> Iterator[Cycle]:
        """Set-up, then every round twice."""
        described = self.described
        set_up = DESCRIPTOR_WORDS + 1 + 1 + described.blocks + 2 + described.column_rounds
        yield from [None] * (set_up + self._owner_cycles() + 1)
        for column_round in range(described.column_rounds):
            for row_round in range(described.row_rounds):
                yield from [None, None]  # ROUND, STEPS
                yield from self._round(column_round, row_round)

    def _owner_cycles(self) -> int:
        described = self.described
        if described.policy == "stored":
            return described.column_tiles + 1
        present = np.zeros((described.column_tiles, self.sizes.depths), dtype=bool)
        for k_tile in range(described.k_tiles):
            present[[block.column for block in self.index.blocks(k_tile)], k_tile] = True
        filled = present[present.any(axis=1)]
        spec = PlannerSpec(self.mesh.columns, 1, self.sizes.column_tiles, self.sizes.depths, 0, self.sizes.column_tiles)
        walk = 2 + 2 * described.k_tiles + 3 * described.blocks  # LINE and FETCH, but for the first line
        planned = len(planner_cycles(spec, filled, described.policy))
        return 1 + described.column_tiles + walk + described.column_tiles + planned + max(1, len(filled))

    def _round(self, column_round: int, row_round: int) -> Iterator[Cycle]:
        order = self.index.order(column_round)
        last: dict[tuple[int, int], int] = {}
        for place, k_tile in enumerate(order):
            batches, blocks = self._k_step(row_round, k_tile)
            yield from [None] * self._fetch_cycles(len(blocks))
            mine = {self.owners[each.column].mesh_column for each in blocks if self._is_in(each, column_round)}
            for row, group in self.parts:
                if batches[row, group].last:
                    last |= {(row, group + column): place for column in mine}
        for place, k_tile in enumerate(order):
            batches, blocks = self._k_step(row_round, k_tile)
            yield from self._emit(column_round, place, batches, blocks, last)
        for cluster in last:
            self.rounds[cluster] += 1

    def _k_step(self, row_round: int, k_tile: int) -> tuple[dict[tuple[int, int], Batch], list[Block]]:
        batches = {part: self.index.batch(row_round, k_tile, number) for number, part in enumerate(self.parts)}
        return batches, self.index.blocks(k_tile)

    def _is_in(self, block: Block, column_round: int) -> bool:
        return self.owners[block.column].round == column_round

    def _fetch_cycles(self, blocks: int) -> int:
        """Order, k_tile, counts of all parts, the walk, and what comes after it."""
        return 2 + len(self.parts) + 1 + 3 + 3 * blocks + 1 + 1

    def _emit(
        self,
        column_round: int,
        place: int,
        batches: dict[tuple[int, int], Batch],
        blocks: list[Block],
        last: dict[tuple[int, int], int],
    ) -> Iterator[Cycle]:
        yield from [None] * (2 + len(self.parts) + 1 + 3)
        mine: dict[int, list[Block]] = {}
        for block in blocks:
            yield from [None, None]
            if not self._is_in(block, column_round):
                yield None
                continue
            owner = self.owners[block.column]
            mine.setdefault(owner.mesh_column, []).append(block)
            for group in range(0, self.mesh.columns, self.group_columns):
                yield self._block_offer(block, group + owner.mesh_column, group, batches)
        yield None
        for row, group in self.parts:
            yield None  # PART
            if batches[row, group].last and mine:
                yield from [None, None]
                yield from self._part(column_round, place, (row, group), batches[row, group], mine, last)
        yield None  # NEXT

    def _block_offer(self, block: Block, place: int, group: int, batches: dict[tuple[int, int], Batch]) -> Cycle:
        users = sum(1 << row for row in range(self.mesh.rows) if batches[row, group].last)
        if not users:
            return None
        fields = {"parallel": 1, **_payload(block.size, block.address), "destinations": users}
        return Offer(self.mesh.rows + place, pack_fields(self.fabric.command(self.mesh.rows, serial=False), fields))

    def _part(
        self,
        column_round: int,
        place: int,
        part: tuple[int, int],
        batch: Batch,
        mine: dict[int, list[Block]],
        last: dict[tuple[int, int], int],
    ) -> Iterator[Cycle]:
        row, group = part
        layout, size = self.fabric.command(self.mesh.columns, serial=True), self.fabric.header.size
        for tile in range(batch.last):
            if tile % SIZES_PER_WORD == 0:
                yield None  # SUM
            if not batch.sizes[tile]:
                yield None
                continue
            headers = 0
            for column, blocks in mine.items():
                cluster = (row, group + column)
                fields = self._header(column_round, tile, batch, blocks)
                is_last = tile + 1 == batch.last
                fields |= {
                    "round": self.rounds[cluster] % 2**ROUND_BITS,
                    "last_of_k_step": int(is_last),
                    "last_of_round": int(is_last and last[cluster] == place),
                }
                headers |= pack_fields(self.fabric.header, fields) << size * cluster[1]
            destinations = sum(1 << group + column for column in mine)
            fields = {**_payload(batch.sizes[tile], batch.addresses[tile]), "destinations": destinations}
            yield Offer(row, pack_fields(layout, fields | {"headers": headers}))

    def _header(self, column_round: int, tile: int, batch: Batch, blocks: list[Block]) -> dict[str, int]:
        owner = self.owners[blocks[0].column]
        owned = sum(
            each.round == column_round and each.mesh_column == owner.mesh_column for each in self.owners.values()
        )
        columns = [block.column for block in blocks]
        has_edge = not self.fabric.skips_both and self.described.column_tiles - 1 in columns
        return {
            "blocks": (1 << len(blocks)) - 1,
            "sums": sum(1 << tile * owned + self.owners[column].place for column in columns),
            "count": len(blocks),
            "edge_valid": int(has_edge),
            "edge": columns.index(self.described.column_tiles - 1) if has_edge else 0,
            "tiles": batch.tiles * owned,
        }


def _payload(size: int, address: int) -> dict[str, int]:
    return {"packed": int(size >= PACKED), "flits": int(flits_of(size)), "address": address}
