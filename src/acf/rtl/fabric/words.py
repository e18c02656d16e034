"""A `Program` as words: what every controller's command memory and every memory behind it hold."""

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
from acf.lowering import SERIAL, Program, Stream
from acf.rtl.fabric.sizes import ROUND_BITS, FabricSizes

Bits = NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class Item:
    """A serial piece in a cluster: its packet, and the pieces of the bank that its blocks add to, by block rank."""

    packet: int
    sums: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Place:
    """What a cluster does: its items in order, the blocks of every step as output columns, its rounds."""

    items: list[Item]
    blocks: Mapping[int, list[int]]
    rounds: list[int]


@dataclass(frozen=True, eq=False)
class Encoded:
    """``commands`` and ``flits`` by line, as integers; ``places`` by cluster; ``tiles`` by cluster and round.

    ``tiles[cluster, round]``: the output piece (serial piece, output column) of every piece of the bank.
    """

    commands: list[list[int]]
    flits: list[list[int]]
    places: list[Place]
    tiles: Mapping[tuple[int, int], list[tuple[int, int]]]
    edge_cycles: int


def pack_fields(layout: data.StructLayout, fields: Mapping[str, int]) -> int:
    """An integer with the named fields of a layout."""
    word = 0
    for name, value in fields.items():
        field = layout[name]
        if value >> field.width:
            raise RtlError(f"{name} {value} does not fit in {field.width} bits of a command; use a larger fabric")
        word |= value << field.offset
    return word


def check_commands(encoded: Encoded, sizes: FabricSizes) -> None:
    """Refuse a program whose commands must all be in the command memories and are not."""
    longest = max(map(len, encoded.commands))
    if longest > sizes.command_depth:
        raise RtlError(
            f"command_depth {sizes.command_depth} is less than the {longest} commands of this program; give more, or "
            "run it on a device, which refills its command memories"
        )


def encode(program: Program, sizes: FabricSizes, serial: Bits, parallel: Bits) -> Encoded:
    """Words of ``program`` over the bf16 bits of ``serial [rows, k]`` and ``parallel [k, columns]``."""
    return _Encoder(program, sizes, serial, parallel).encode()


class _Encoder:
    def __init__(self, program: Program, sizes: FabricSizes, serial: Bits, parallel: Bits) -> None:
        self.program, self.sizes, self.shape = program, sizes, sizes.shape
        self.serial, self.parallel = serial, parallel
        self.last_column = -(-parallel.shape[1] // self.shape.tile) - 1
        width = parallel.shape[1] - self.last_column * self.shape.tile
        self.edge_cycles = max(-(-width // self.shape.lanes), self.shape.scus_per_port)

    def encode(self) -> Encoded:
        shape = self.shape
        blocks = [self._blocks(row, column) for row in range(shape.mesh_rows) for column in range(shape.mesh_columns)]
        tiles = self._number_tiles(blocks)
        places = [self._place(cluster, blocks[cluster], tiles) for cluster in range(shape.clusters)]
        headers = self._headers(places, tiles)
        commands: list[list[int]] = []
        flits: list[list[int]] = []
        for row in range(shape.mesh_rows):
            words, contents = self._stream(self.program.rows, row, headers)
            commands.append(words)
            flits.append(contents)
        for column in range(shape.mesh_columns):
            words, contents = self._stream(self.program.columns, column, None)
            if self.program.reduces:
                words = self._sum_commands(column, places)
            commands.append(words)
            flits.append(contents)
        return Encoded(commands, flits, places, tiles, self.edge_cycles)

    # What happens in a cluster.
    def _packets(self, cluster: int) -> list[int]:
        """Serial packets of a cluster in order."""
        row, column = divmod(cluster, self.shape.mesh_columns)
        rows = self.program.rows
        span = range(int(rows.first[row]), int(rows.first[row + 1]))
        return [packet for packet in span if rows.kind[packet] == SERIAL and _takes(rows.destinations[packet], column)]

    def _blocks(self, row: int, column: int) -> dict[int, list[int]]:
        """For every step the output columns whose blocks reach the cluster, in the order of arrival."""
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

    def _number_tiles(self, blocks: list[dict[int, list[int]]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Pieces of every bank, so that blocks of a step come in the order of the pieces they add to.

        Clusters of a column share the numbers where their sums are added.
        """
        rows = self.program.rows
        pairs: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        follows: dict[tuple[int, int], TopologicalSorter[int]] = defaultdict(TopologicalSorter)
        for cluster in range(self.shape.clusters):
            scope = cluster % self.shape.mesh_columns if self.program.reduces else cluster
            for packet in self._packets(cluster):
                key = scope, int(rows.round[packet])
                met = self._met(packet, cluster, blocks[cluster])
                pairs[key] |= {(int(rows.row_tile[packet]), column) for _, column in met}
                for (_, before), (_, after) in pairwise(met):
                    follows[key].add(after, before)
        numbered = {}
        for key, found in pairs.items():
            order = {column: place for place, column in enumerate(follows[key].static_order())}
            numbered[key] = sorted(found, key=lambda pair: (pair[0], order.get(pair[1], 0), pair[1]))
            if len(found) > self.shape.accumulator_tiles:
                raise RtlError(f"{len(found)} output pieces do not fit in a bank; lower the program for this shape")
        if not self.program.reduces:
            return numbered
        columns = self.shape.mesh_columns
        return {
            (row * columns + column, number): pieces
            for (column, number), pieces in numbered.items()
            for row in range(self.shape.mesh_rows)
        }

    def _place(
        self,
        cluster: int,
        blocks: Mapping[int, list[int]],
        tiles: Mapping[tuple[int, int], list[tuple[int, int]]],
    ) -> Place:
        rows = self.program.rows
        items = []
        numbers = {
            key: {pair: place for place, pair in enumerate(pairs)} for key, pairs in tiles.items() if key[0] == cluster
        }
        for packet in self._packets(cluster):
            number = numbers[cluster, int(rows.round[packet])]
            piece = int(rows.row_tile[packet])
            items.append(
                Item(packet, {rank: number[piece, column] for rank, column in self._met(packet, cluster, blocks)})
            )
        return Place(items, blocks, sorted(number for key, number in tiles if key == cluster))

    def _headers(
        self, places: list[Place], tiles: Mapping[tuple[int, int], list[tuple[int, int]]]
    ) -> dict[tuple[int, int], int]:
        """The word for every taker of every serial packet, by (packet, mesh column)."""
        rows, headers = self.program.rows, {}
        tile_flits = 2 * self.shape.tile**2 // self.shape.link_bytes
        for cluster, place in enumerate(places):
            row, column = divmod(cluster, self.shape.mesh_columns)
            local = {number: index for index, number in enumerate(place.rounds)}
            before = 0
            for index, item in enumerate(place.items):
                following = place.items[index + 1].packet if index + 1 < len(place.items) else None
                step, number = int(rows.k_step[item.packet]), int(rows.round[item.packet])
                if local[number] - before >= 2 ** (ROUND_BITS - 1):
                    raise RtlError(
                        f"cluster {cluster} has nothing to do for {local[number] - before} rounds, and tells apart "
                        f"{2 ** (ROUND_BITS - 1)}; use another mapping or a larger bank"
                    )
                before = local[number]
                columns = place.blocks[step]
                has_edge = not self.sizes.skips_both and self.last_column in columns
                result_tiles = 0
                if not self.program.reduces:
                    result_tiles = int(self.program.round_flits[number, row, column]) // tile_flits
                headers[item.packet, column] = pack_fields(
                    self.sizes.header,
                    {
                        "blocks": sum(1 << rank for rank in item.sums),
                        "sums": sum(1 << piece for piece in item.sums.values()),
                        "count": len(columns),
                        "edge_valid": int(has_edge),
                        "edge": columns.index(self.last_column) if has_edge else 0,
                        "round": local[number] % 2**ROUND_BITS,
                        "last_of_step": int(following is None or int(rows.k_step[following]) != step),
                        "last_of_round": int(following is None or int(rows.round[following]) != number),
                        "tiles": result_tiles,
                    },
                )
        return headers

    # What a controller sends.
    def _stream(
        self, stream: Stream, line: int, headers: Mapping[tuple[int, int], int] | None
    ) -> tuple[list[int], list[int]]:
        """Commands of a line and the flits of its memory; a piece that is sent twice is stored once."""
        places = self.shape.mesh_rows if headers is None else self.shape.mesh_columns
        layout = self.sizes.command(places, serial=headers is not None)
        words: list[int] = []
        flits: list[int] = []
        at: dict[tuple[int, int, int], tuple[int, int]] = {}
        for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
            kind, piece, depth = int(stream.kind[packet]), int(stream.row_tile[packet]), int(stream.k_tile[packet])
            if (kind, piece, depth) not in at:
                payload, packed = self._payload(kind, piece, depth)
                at[kind, piece, depth] = len(flits), packed
                flits += payload
                if len(flits) > self.sizes.memory_flits:
                    raise RtlError(
                        f"a line of this program has more than the {self.sizes.memory_flits} flits that its commands "
                        "can address; build with more memory_flits, or cut the product"
                    )
                if len(payload) != int(stream.flits[packet]):
                    raise RtlError(
                        f"packet {packet} has {len(payload)} flits of values and {int(stream.flits[packet])} in the "
                        "program; encode with the operands that were lowered"
                    )
            address, packed = at[kind, piece, depth]
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

    def _payload(self, kind: int, piece: int, depth: int) -> tuple[list[int], int]:
        """Flits of a piece, and whether it is packed: a bit per value, then those that are no zeros."""
        tile = self.shape.tile
        whole = np.zeros((tile, tile), dtype=np.uint16)
        along = slice(depth * tile, (depth + 1) * tile)
        if kind == SERIAL:
            first = int(self.program.tile_first_row[piece])
            values = self.serial[first : first + int(self.program.tile_rows[piece]), along]
        else:
            values = self.parallel[along, piece * tile : (piece + 1) * tile]
        whole[: values.shape[0], : values.shape[1]] = values
        flat = whole.reshape(-1)
        present = (flat & 0x7FFF) != 0
        packed = 2 * int(present.sum()) + flat.size // 8 <= 2 * flat.size
        payload = flat.astype("<u2").tobytes()
        if packed:
            payload = np.packbits(present, bitorder="little").tobytes() + flat[present].astype("<u2").tobytes()
        size = self.shape.link_bytes
        return [int.from_bytes(payload[at : at + size], "little") for at in range(0, len(payload), size)], int(packed)

    def _sum_commands(self, column: int, places: list[Place]) -> list[int]:
        """One command for every round of a column: who takes part, and how many flits of sums each of them sends."""
        shape, program = self.shape, self.program
        layout = self.sizes.command(shape.mesh_rows, serial=False)
        clusters = [row * shape.mesh_columns + column for row in range(shape.mesh_rows)]
        has_items: dict[int, int] = defaultdict(int)
        for row, cluster in enumerate(clusters):
            for item in places[cluster].items:
                has_items[int(program.rows.round[item.packet])] |= 1 << row
        words = []
        stride = shape.sum_flit_cycles * program.split
        for number in sorted(has_items):
            flits = int(program.round_flits[number, 0, column]) // program.split
            fields: dict[str, Any] = {
                "destinations": has_items[number],
                "sum_flits": flits,
                "sum_stride": stride,
                "sum_cycles": shape.hop_cycles * shape.mesh_rows + flits * stride,
            }
            words.append(pack_fields(layout, fields))
        return words


def _takes(bits: Any, place: int) -> bool:
    return bool((int(bits) >> place) & 1)
