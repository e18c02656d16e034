"""The index controller on a split-K product, cycle by cycle: what it offers, from descriptor and index alone.

A cluster is named by its mesh row and mesh column.
"""

from collections.abc import Iterator

from acf.lowering.descriptor import DESCRIPTOR_WORDS
from acf.lowering.fabric_shape import SUM_BYTES
from acf.lowering.product_index import SIZES_PER_WORD
from acf.rtl.design.fabric.encoding import pack_fields
from acf.rtl.design.fabric.sizes import ROUND_BITS
from acf.rtl.design.index.controller_units import IndexSizes
from acf.rtl.design.index.offers import Cycle, Meeting, Offer, payload_fields
from acf.rtl.design.index.split_k_model import KTileWork, Output, SplitKIndex, Tiles

Cluster = tuple[int, int]


def split_k_cycles(index: SplitKIndex, sizes: IndexSizes, number: int) -> Iterator[Cycle]:
    """What controller ``number`` offers in every cycle after ``start``."""
    return _SplitKController(index, sizes, number).cycles()


def _words(tiles: int) -> int:
    return -(-tiles // SIZES_PER_WORD)


class _SplitKController:
    def __init__(self, index: SplitKIndex, sizes: IndexSizes, number: int) -> None:
        self.index, self.sizes, self.number, self.described = index, sizes, number, index.descriptor
        self.fabric, self.mesh, self.shape = sizes.fabric, index.mesh, sizes.fabric.shape
        self.group_columns = self.described.group_columns
        self.rounds = [0] * self.mesh.columns
        self.column_words, self.row_words = _words(self.described.column_tiles), _words(index.row_tiles)

    def cycles(self) -> Iterator[Cycle]:
        """Descriptor and its check, the part of the last k_tile; then round by round."""
        yield from [None] * (DESCRIPTOR_WORDS + 1 + 1 + 2)
        for number in range(self.described.column_rounds):
            outputs = self.index.outputs(number)
            yield from [None] * (3 + max(self.column_words, self.row_words) + 2 * len(outputs) + 1)
            found = [self._look_back(outputs, each) for each in range(self.sizes.sharing)]
            yield from [None] * found[self.number][1]
            if self.sizes.sharing > 1:
                yield Meeting()
            last = {cluster: k_tile for each, _ in found for cluster, k_tile in each.items()}
            owned = [sum(each.mesh_column == column for each in outputs) for column in range(self.group_columns)]
            for column in range(self.number, self.mesh.columns, self.sizes.sharing):
                yield self._sums(column, last, owned[column % self.group_columns])
            for first in range(0, self.described.k_tiles, self.mesh.rows):
                for row in range(self.number, self.mesh.rows, self.sizes.sharing):
                    if first + row < self.described.k_tiles:
                        yield from self._k_tile(first + row, outputs, last)
            yield from [None, None]  # no k_tile is left; the end of the round
            for column in {column for _, column in last}:
                self.rounds[column] += 1

    def _look_back(self, outputs: list[Output], number: int) -> tuple[dict[Cluster, int], int]:
        """The last k_tile of every cluster of a controller's mesh rows that has one, and the cycles of finding them."""
        places = {output.mesh_column for output in outputs}
        missing = {
            (row, group + place)
            for row in range(number, self.mesh.rows, self.sizes.sharing)
            for group in range(0, self.mesh.columns, self.group_columns)
            for place in places
        }
        last: dict[Cluster, int] = {}
        cycles = 0
        for k_tile in reversed(range(self.described.k_tiles)):
            if not missing:
                break
            cycles += 1
            row, group = self.index.part_of(k_tile)
            own = {(row, group + place) for place in places} & missing
            if not own:
                continue
            cycles += self.column_words + self.row_words + 2
            work = self._work(k_tile, outputs)
            found = {each for each in own if work.stored[each[1] - group]}
            last |= dict.fromkeys(found, k_tile)
            missing -= found
        return last, cycles + 1

    def _work(self, k_tile: int, outputs: list[Output]) -> KTileWork:
        return KTileWork(outputs, *self.index.tiles(k_tile), self.group_columns)

    def _sums(self, column: int, last: dict[Cluster, int], owned: int) -> Cycle:
        """The order of a mesh column's partial sums, or of zeros where only other groups take part."""
        shape, line = self.shape, self.mesh.rows + column
        chain = range(column % self.group_columns, self.mesh.columns, self.group_columns)
        if not any(each in chain for _, each in last):
            return None
        flits, stride = owned * shape.tile**2 * SUM_BYTES // shape.link_bytes, shape.sum_flit_cycles * self.index.groups
        layout = self.fabric.command(self.mesh.rows, serial=False)
        rows = sum(1 << row for row in range(self.mesh.rows) if (row, column) in last)
        if not rows:
            return Offer(line, pack_fields(layout, {"address": flits}), is_gap=True)
        fields = {"destinations": rows, "sum_flits": flits, "sum_stride": stride}
        fields["sum_cycles"] = shape.hop_cycles * shape.mesh_rows + flits * stride
        return Offer(line, pack_fields(layout, fields))

    def _k_tile(self, k_tile: int, outputs: list[Output], last: dict[Cluster, int]) -> Iterator[Cycle]:
        """The sizes of all tiles, then the packets: blocks by column, serial tiles by row."""
        yield from [None] * (1 + 2 + self.column_words + self.row_words + 1 + 1)
        (line, group), (rows, columns) = self.index.part_of(k_tile), self.index.tiles(k_tile)
        work = self._work(k_tile, outputs)
        if any(work.stored):
            yield from self._blocks(line, group, work, columns)
            closing = {place for (row, place), at in last.items() if row == line and at == k_tile}
            yield from self._serial_tiles((line, group), outputs, work, rows, closing)

    def _blocks(self, line: int, group: int, work: KTileWork, columns: Tiles) -> Iterator[Cycle]:
        layout = self.fabric.command(self.mesh.columns, serial=True)
        for word in range(self.column_words):
            first = word * SIZES_PER_WORD
            sent = [each for each in range(first, first + SIZES_PER_WORD) if each in work.takers]
            if not sent:
                yield None
            for column in sent:
                if not self.described.direct:
                    yield None  # its first flit is read
                fields = {"parallel": 1, **payload_fields(columns.sizes[column], columns.addresses[column])}
                fields["destinations"] = sum(1 << group + place for place in work.takers[column])
                fields["transposed"] = int(self.described.parallel_transposed)
                yield Offer(line, pack_fields(layout, fields))

    def _serial_tiles(
        self, part: tuple[int, int], outputs: list[Output], work: KTileWork, rows: Tiles, closing: set[int]
    ) -> Iterator[Cycle]:
        layout, size = self.fabric.command(self.mesh.columns, serial=True), self.fabric.header.size
        of_round = {output.row for output in outputs}
        line, group = part
        for word in range(self.row_words):
            first = word * SIZES_PER_WORD
            visited = [row for row in range(first, first + SIZES_PER_WORD) if row in of_round]
            if not visited:
                yield None
            for row in visited:
                if row not in work.met:
                    yield None
                    continue
                headers = {
                    group + place: self._header(row, place, outputs, work) | {"round": self.rounds[group + place]}
                    for place in range(self.group_columns)
                    if work.met[row][place]
                }
                fields = {**payload_fields(rows.sizes[row], rows.addresses[row])}
                fields["destinations"] = sum(1 << place for place in headers)
                fields["transposed"] = int(self.described.serial_transposed)
                fields["headers"] = sum(
                    self._packed_header(header, place in closing) << size * place for place, header in headers.items()
                )
                yield Offer(line, pack_fields(layout, fields))

    def _packed_header(self, header: dict[str, int], closes: bool) -> int:
        last = header["last_of_k_step"] and closes
        fields = header | {"last_of_round": int(last), "round": header["round"] % 2**ROUND_BITS}
        return pack_fields(self.fabric.header, fields)

    def _header(self, row: int, place: int, outputs: list[Output], work: KTileWork) -> dict[str, int]:
        mine = [output for output in outputs if output.mesh_column == place]
        tiles = {(output.row, output.number): tile for tile, output in enumerate(mine)}
        edge = {output.number for output in mine if output.column == self.described.column_tiles - 1}
        has_edge = not self.fabric.skips_both and bool(edge & work.stored[place])
        count = len(work.stored[place])
        return {
            "blocks": work.met_ranks(row, place),
            "sums": sum(1 << tiles[row, number] for number in work.met[row][place]),
            "count": count,
            "edge_valid": int(has_edge),
            "edge": count - 1 if has_edge else 0,
            "last_of_k_step": int(row == max(each for each, met in work.met.items() if met[place])),
        }
