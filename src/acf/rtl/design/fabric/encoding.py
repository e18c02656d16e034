"""A program as the fabric takes it: command words and flits of every line. `decoding` is the way back."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.lowering import PARALLEL, SERIAL, Program, Stream
from acf.lowering.tile_format import is_packed, pack_tile
from acf.rtl.design.fabric.sizes import ROUND_BITS, FabricSizes

Bits = NDArray[np.uint16]

TileNumbers = Mapping[tuple[int, int], list[tuple[int, int]]]
"""(serial tile, output column) of every tile of the accumulator bank, by (cluster, round)."""


@dataclass(frozen=True, eq=False)
class OperandStorage:
    """Operands that all lines share, as an index of the product describes them.

    ``addresses``: first flit of a tile in its operand, by (kind, tile, k_tile). ``tiles``: every tile of the bank by
    (cluster, round), whether or not the product has a non-zero there.
    """

    addresses: Mapping[tuple[int, int, int], int]
    tiles: TileNumbers


@dataclass(frozen=True, eq=False)
class Item:
    """A serial tile in a cluster's queue: its packet, and by block rank the tile of the bank that a block adds to."""

    packet: int
    sums: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class ClusterWork:
    """What a cluster does: its items in order, the blocks of every k_step as output columns, its rounds."""

    items: list[Item]
    blocks: Mapping[int, list[int]]
    rounds: list[int]


@dataclass(frozen=True, eq=False)
class EncodedProgram:
    """A program over bf16 bits ``serial [rows, k]`` and ``parallel [k, columns]``, encoded for a fabric of ``sizes``.

    ``commands`` and ``flits``: words of every line as integers, mesh rows first. ``work``: by cluster.
    ``edge_cycles``: cycles of a row of the last block column, which may be narrower than a tile.
    """

    program: Program
    sizes: FabricSizes
    serial: Bits
    parallel: Bits
    commands: list[list[int]]
    flits: list[list[int]]
    work: list[ClusterWork]
    tiles: TileNumbers
    edge_cycles: int

    @property
    def output_shape(self) -> tuple[int, int]:
        """Serial rows x parallel columns; the product's shape, or its transpose where the operands are swapped."""
        return self.serial.shape[0], self.parallel.shape[1]


def pack_fields(layout: data.StructLayout, fields: Mapping[str, int]) -> int:
    """An integer with the named fields of a layout."""
    word = 0
    for name, value in fields.items():
        field = layout[name]
        if value >> field.width:
            raise RtlError(f"{name} {value} does not fit in {field.width} bits of a command; use a larger fabric")
        word |= value << field.offset
    return word


def check_commands(encoded: EncodedProgram) -> None:
    """Refuse a program whose commands exceed the command memories, for a fabric that cannot refill them."""
    longest, depth = max(map(len, encoded.commands)), encoded.sizes.command_depth
    if longest > depth:
        raise RtlError(
            f"command_depth {depth} is less than the {longest} commands of this program; give more, or "
            "run it on a device, which refills its command memories"
        )


def encode(
    program: Program, sizes: FabricSizes, serial: Bits, parallel: Bits, storage: OperandStorage | None = None
) -> EncodedProgram:
    """Command words and flits of ``program`` over bf16 bits ``serial [rows, k]`` and ``parallel [k, columns]``.

    With ``storage`` every line has the flits of its whole operand; without, those of its own packets.
    """
    return _Encoder(program, sizes, serial, parallel, storage).encode()


class _Encoder:
    def __init__(
        self, program: Program, sizes: FabricSizes, serial: Bits, parallel: Bits, storage: OperandStorage | None
    ) -> None:
        self.storage = storage
        self.program, self.sizes, self.shape = program, sizes, sizes.shape
        self.serial, self.parallel = serial, parallel
        self.last_column = -(-parallel.shape[1] // self.shape.tile) - 1
        width = parallel.shape[1] - self.last_column * self.shape.tile
        self.edge_cycles = max(-(-width // self.shape.lanes), self.shape.scus_per_port)

    def encode(self) -> EncodedProgram:
        shape = self.shape
        blocks = [self._blocks(row, column) for row in range(shape.mesh_rows) for column in range(shape.mesh_columns)]
        tiles = self._number_tiles(blocks)
        if self.storage is not None:
            tiles = {key: self.storage.tiles[key] for key in tiles}
        work = [self._work(cluster, blocks[cluster], tiles) for cluster in range(shape.clusters)]
        headers = self._headers(work)
        commands: list[list[int]] = []
        flits: list[list[int]] = []
        for row in range(shape.mesh_rows):
            words, contents = self._stream(self.program.rows, row, headers)
            commands.append(words)
            flits.append(contents)
        for column in range(shape.mesh_columns):
            words, contents = self._stream(self.program.columns, column, None)
            if self.program.reduces:
                words = self._sum_commands(column, work)
            commands.append(words)
            flits.append(contents)
        return EncodedProgram(
            self.program, self.sizes, self.serial, self.parallel, commands, flits, work, tiles, self.edge_cycles
        )

    # The work of a cluster.
    def _packets(self, cluster: int) -> list[int]:
        """Serial packets of a cluster in order."""
        row, column = divmod(cluster, self.shape.mesh_columns)
        rows = self.program.rows
        span = range(int(rows.first[row]), int(rows.first[row + 1]))
        return [packet for packet in span if rows.kind[packet] == SERIAL and _takes(rows.destinations[packet], column)]

    def _blocks(self, row: int, column: int) -> dict[int, list[int]]:
        """For every k_step the output columns whose blocks reach the cluster, in order of arrival."""
        blocks: dict[int, list[int]] = defaultdict(list)
        for stream, line, place in ((self.program.columns, column, row), (self.program.rows, row, column)):
            for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
                if stream.kind[packet] != SERIAL and _takes(stream.destinations[packet], place):
                    blocks[int(stream.k_step[packet])].append(int(stream.row_tile[packet]))
        return blocks

    def _met(self, packet: int, cluster: int, blocks: Mapping[int, list[int]]) -> list[tuple[int, int]]:
        """(rank, output column) of the blocks that a packet meets."""
        bits = self.program.rows.parallel_tiles[packet, cluster % self.shape.mesh_columns]
        columns = blocks[int(self.program.rows.k_step[packet])]
        return [(rank, column) for rank, column in enumerate(columns) if _takes(bits, rank)]

    def _number_tiles(self, blocks: list[dict[int, list[int]]]) -> TileNumbers:
        """Number the tiles of every bank so that the blocks of a k_step arrive in the order of the tiles they add to.

        Clusters whose partial sums are added share the numbers: those of a mesh column, and of the columns at the same
        place in other groups of columns.
        """
        rows = self.program.rows
        columns, group_columns = self.shape.mesh_columns, self.shape.mesh_columns // self.program.split
        took_part: set[tuple[int, int]] = set()
        pairs: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        follows: dict[tuple[int, int], TopologicalSorter[int]] = defaultdict(TopologicalSorter)
        for cluster in range(self.shape.clusters):
            scope = cluster % group_columns if self.program.reduces else cluster
            for packet in self._packets(cluster):
                key = scope, int(rows.round[packet])
                took_part.add((cluster % columns, key[1]))
                met = self._met(packet, cluster, blocks[cluster])
                pairs[key] |= {(int(rows.row_tile[packet]), column) for _, column in met}
                for (_, before), (_, after) in pairwise(met):
                    follows[key].add(after, before)
        numbered = {}
        for key, found in pairs.items():
            order = {column: place for place, column in enumerate(follows[key].static_order())}
            numbered[key] = sorted(found, key=lambda pair: (pair[0], order.get(pair[1], 0), pair[1]))
            if len(found) > self.shape.accumulator_tiles:
                raise RtlError(f"{len(found)} output tiles do not fit in a bank; lower the program for this shape")
        if not self.program.reduces:
            return numbered
        return {
            (row * columns + column, number): numbered[column % group_columns, number]
            for column, number in sorted(took_part)
            for row in range(self.shape.mesh_rows)
        }

    def _work(self, cluster: int, blocks: Mapping[int, list[int]], tiles: TileNumbers) -> ClusterWork:
        rows = self.program.rows
        items = []
        numbers = {
            key: {pair: place for place, pair in enumerate(pairs)} for key, pairs in tiles.items() if key[0] == cluster
        }
        for packet in self._packets(cluster):
            number = numbers[cluster, int(rows.round[packet])]
            tile = int(rows.row_tile[packet])
            met = self._met(packet, cluster, blocks)
            items.append(Item(packet, {rank: number[tile, column] for rank, column in met}))
        return ClusterWork(items, blocks, sorted(number for key, number in tiles if key == cluster))

    def _headers(self, work: list[ClusterWork]) -> dict[tuple[int, int], int]:
        """The header for every destination of every serial packet, by (packet, mesh column)."""
        rounds, headers = self.program.rows.round, {}
        for cluster, own in enumerate(work):
            local = {number: index for index, number in enumerate(own.rounds)}
            before = 0
            for index, item in enumerate(own.items):
                number = local[int(rounds[item.packet])]
                if number - before >= 2 ** (ROUND_BITS - 1):
                    raise RtlError(
                        f"cluster {cluster} has nothing to do for {number - before} rounds, and tells apart "
                        f"{2 ** (ROUND_BITS - 1)}; use another mapping or a larger bank"
                    )
                before = number
                fields = self._header_fields(cluster, own, index) | {"round": number % 2**ROUND_BITS}
                headers[item.packet, cluster % self.shape.mesh_columns] = pack_fields(self.sizes.header, fields)
        return headers

    def _header_fields(self, cluster: int, work: ClusterWork, index: int) -> dict[str, int]:
        """All fields but the round of the header that item ``index`` of a cluster comes with."""
        rows, item = self.program.rows, work.items[index]
        following = work.items[index + 1].packet if index + 1 < len(work.items) else None
        k_step, number = int(rows.k_step[item.packet]), int(rows.round[item.packet])
        columns = work.blocks[k_step]
        has_edge = not self.sizes.skips_both and self.last_column in columns
        result_tiles = 0
        if not self.program.reduces:
            tile_flits = 2 * self.shape.tile**2 // self.shape.link_bytes
            place = divmod(cluster, self.shape.mesh_columns)
            result_tiles = int(self.program.round_flits[(number, *place)]) // tile_flits
        return {
            "blocks": sum(1 << rank for rank in item.sums),
            "sums": sum(1 << tile for tile in item.sums.values()),
            "count": len(columns),
            "edge_valid": int(has_edge),
            "edge": columns.index(self.last_column) if has_edge else 0,
            "last_of_k_step": int(following is None or int(rows.k_step[following]) != k_step),
            "last_of_round": int(following is None or int(rows.round[following]) != number),
            "tiles": result_tiles,
        }

    # The stream of a controller.
    def _stream(
        self, stream: Stream, line: int, headers: Mapping[tuple[int, int], int] | None
    ) -> tuple[list[int], list[int]]:
        """Commands of a line and the flits of its memory; a tile that is sent twice is stored once."""
        places = self.shape.mesh_rows if headers is None else self.shape.mesh_columns
        layout = self.sizes.command(places, serial=headers is not None)
        words: list[int] = []
        flits, stored = self._operand(SERIAL if headers is not None else PARALLEL)
        for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
            kind, tile, k_tile = int(stream.kind[packet]), int(stream.row_tile[packet]), int(stream.k_tile[packet])
            if (kind, tile, k_tile) not in stored:
                payload, packed = self._payload(kind, tile, k_tile)
                stored[kind, tile, k_tile] = len(flits), packed
                flits += payload
                self._check_flits(len(flits), packet, len(payload), int(stream.flits[packet]))
            address, packed = stored[kind, tile, k_tile]
            fields = {
                "parallel": int(kind != SERIAL),
                "packed": packed,
                "flits": int(stream.flits[packet]),
                "address": address,
                "destinations": int(stream.destinations[packet]),
            }
            if headers is not None:
                size = self.sizes.header.size
                fields["headers"] = sum(
                    headers.get((packet, place), 0) << place * size for place in range(places) if kind == SERIAL
                )
            words.append(pack_fields(layout, fields))
        return words, flits

    def _operand(self, kind: int) -> tuple[list[int], dict[tuple[int, int, int], tuple[int, int]]]:
        """Flits of a stored operand, and first flit and packing of its tiles; nothing where lines store their own."""
        flits: list[int] = []
        stored: dict[tuple[int, int, int], tuple[int, int]] = {}
        if self.storage is None:
            return flits, stored
        mine = {key: at for key, at in self.storage.addresses.items() if key[0] == kind}
        for key, address in sorted(mine.items(), key=lambda item: item[1]):
            payload, packed = self._payload(*key)
            if address != len(flits):
                raise RtlError(f"tile {key} is stored at flit {address} and lies at {len(flits)}; build the index anew")
            stored[key] = address, packed
            flits += payload
            self._check_flits(len(flits), 0, 0, 0)
        return flits, stored

    def _check_flits(self, stored: int, packet: int, payload: int, expected: int) -> None:
        """Refuse more flits than an address reaches, and operands other than those that were lowered."""
        if stored > self.sizes.memory_flits:
            raise RtlError(
                f"a line of this program has more than the {self.sizes.memory_flits} flits that its commands "
                "can address; build with more memory_flits, or cut the product"
            )
        if payload != expected:
            raise RtlError(
                f"packet {packet} has {payload} flits of values and {expected} in the "
                "program; encode with the operands that were lowered"
            )

    def _payload(self, kind: int, number: int, k_tile: int) -> tuple[list[int], int]:
        """Flits of a tile, and whether it is packed (`acf.lowering.tile_format`)."""
        tile = self.shape.tile
        whole = np.zeros((tile, tile), dtype=np.uint16)
        along = slice(k_tile * tile, (k_tile + 1) * tile)
        if kind == SERIAL:
            first = int(self.program.tile_first_row[number])
            values = self.serial[first : first + int(self.program.tile_rows[number]), along]
        else:
            values = self.parallel[along, number * tile : (number + 1) * tile]
        whole[: values.shape[0], : values.shape[1]] = values
        packed = bool(is_packed(np.array(np.count_nonzero(whole & 0x7FFF)), self.shape))
        payload = pack_tile(whole, self.shape) if packed else whole.astype("<u2").tobytes()
        size = self.shape.link_bytes
        return [int.from_bytes(payload[at : at + size], "little") for at in range(0, len(payload), size)], int(packed)

    def _sum_commands(self, column: int, work: list[ClusterWork]) -> list[int]:
        """One command per round of a mesh column: the clusters that take part, and their flits of partial sums.

        ``address``: flits of rounds since the column's last one in which only other groups of columns take part.
        """
        shape, program = self.shape, self.program
        layout = self.sizes.command(shape.mesh_rows, serial=False)
        clusters = [row * shape.mesh_columns + column for row in range(shape.mesh_rows)]
        has_items: dict[int, int] = defaultdict(int)
        for row, cluster in enumerate(clusters):
            for item in work[cluster].items:
                has_items[int(program.rows.round[item.packet])] |= 1 << row
        words = []
        stride, gap = shape.sum_flit_cycles * program.split, 0
        group_columns = shape.mesh_columns // program.split
        chain = range(column % group_columns, shape.mesh_columns, group_columns)
        for number in sorted({number for other in chain for number in work[other].rounds}):
            flits = int(program.round_flits[number, 0, column]) // program.split
            if number not in has_items:
                gap += flits
                continue
            fields: dict[str, Any] = {
                "address": gap,
                "destinations": has_items[number],
                "sum_flits": flits,
                "sum_stride": stride,
                "sum_cycles": shape.hop_cycles * shape.mesh_rows + flits * stride,
            }
            words.append(pack_fields(layout, fields))
            gap = 0
        return words


def _takes(bits: Any, place: int) -> bool:
    return bool((int(bits) >> place) & 1)
