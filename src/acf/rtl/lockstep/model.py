"""The model's side: the stepped engine with its log, and sums in the order in which the units add."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.jit import compiled
from acf.lowering import SERIAL, Program
from acf.rtl.arithmetic.model import QUIET_NAN, bf16_bits, bf16_values
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.words import Bits, Encoded
from acf.rtl.lockstep.record import EVENTS, Record
from acf.sim.fabric.event_log import EventLog
from acf.sim.fabric.stepper import step_and_log
from acf.sim.fabric.traffic import REASONS, Timing, Traffic


@dataclass(frozen=True, eq=False)
class Stalls:
    """Row packets from outside the chip: DRAM time in 1/65536 cycles by packet, and ``latency_cycles`` more."""

    ticks: NDArray[np.int64]
    latency_cycles: int


def run_model(
    program: Program, sizes: FabricSizes, encoded: Encoded, serial: Bits, parallel: Bits, stalls: Stalls
) -> Record:
    """Play and compute ``program`` as the fabric does."""
    shape = sizes.shape
    unit_cycles = np.zeros((shape.scus, len(REASONS)), dtype=np.int64)
    log = EventLog.of(program, shape)
    traffic, timing = Traffic.of(program, stalls.ticks), Timing.of(shape, stalls.latency_cycles)
    cycles = step_and_log(traffic, timing, unit_cycles, log)
    output = ordered_output(program, sizes, encoded, serial, parallel)
    return Record(int(cycles), _events(program, sizes, log), unit_cycles, output)


def _events(program: Program, sizes: FabricSizes, log: EventLog) -> dict[str, list[list[int]]]:
    shape = sizes.shape
    counts = {"line": shape.mesh_rows + shape.mesh_columns, "cluster": shape.clusters, "unit": shape.scus}
    events: dict[str, list[list[int]]] = {name: [[] for _ in range(counts[kind])] for name, kind in EVENTS.items()}
    rows, columns = program.rows, program.columns
    for stream, lines, offset in ((rows, shape.mesh_rows, 0), (columns, shape.mesh_columns, rows.packets)):
        for line in range(lines):
            for packet in range(int(stream.first[line]), int(stream.first[line + 1])):
                sent = int(log.sent_at[offset + packet])
                events["send"][line if stream is rows else shape.mesh_rows + line].append(sent)
                for place in range(shape.mesh_columns if stream is rows else shape.mesh_rows):
                    if not (int(stream.destinations[packet]) >> place) & 1:
                        continue
                    cluster = line * shape.mesh_columns + place if stream is rows else place * shape.mesh_columns + line
                    arrival = sent + int(stream.flits[packet]) + shape.hop_cycles * (place + 1)
                    is_serial = stream.kind[packet] == SERIAL
                    events["serial_arrival" if is_serial else "parallel_arrival"][cluster].append(arrival)
                    if is_serial:
                        _unit_events(events, program, sizes, log, packet, place, cluster)
    for number in range(program.rounds):
        for cluster in range(shape.clusters):
            _drain_events(events, program, sizes, log, number, cluster)
    return events


def _unit_events(
    events: dict[str, list[list[int]]],
    program: Program,
    sizes: FabricSizes,
    log: EventLog,
    packet: int,
    place: int,
    cluster: int,
) -> None:
    units = sizes.shape.scus_per_cluster
    nearer = int(program.rows.destinations[packet]) & ((1 << place) - 1)
    item = int(program.rows.item_first[packet]) + nearer.bit_count()
    for unit in range(units):
        begun = int(log.begun_at[packet, place, unit])
        cost = max(1, int(program.rows.item_cycles[item, unit]))
        events["begin"][cluster * units + unit].append(begun)
        events["end"][cluster * units + unit].append(begun + cost)


def _drain_events(
    events: dict[str, list[list[int]]],
    program: Program,
    sizes: FabricSizes,
    log: EventLog,
    number: int,
    cluster: int,
) -> None:
    shape = sizes.shape
    first, emptied = int(log.first_left[number, cluster]), int(log.emptied_at[number, cluster])
    if emptied < 0:
        return
    events["empty"][cluster].append(emptied)
    if program.reduces:
        stride = shape.sum_flit_cycles * program.split
        flits = int(program.round_flits[number, 0, cluster % shape.mesh_columns]) // program.split
        events["leave"][cluster] += [first + flit * stride for flit in range(flits)]
    else:
        last = int(log.last_left[number, cluster])
        events["leave"][cluster] += list(range(first, last + 1, shape.result_period_cycles))


def ordered_output(
    program: Program, sizes: FabricSizes, encoded: Encoded, serial: Bits, parallel: Bits
) -> NDArray[np.uint32]:
    """Float32 bits of the output as the fabric computes it, ``[m, n]``.

    Every sum begins at zero and takes the products of its cluster step by step and within a step by rising depth, each
    rounded to the nearest. Then it is rounded to bf16; or, where the reduction is spread, the sums of a mesh column are
    added from the first row down, and groups of columns in their order.
    """
    shape = sizes.shape
    banks = _fill_banks(program, sizes, encoded, bf16_values(serial), bf16_values(parallel))
    output = np.zeros((serial.shape[0], parallel.shape[1]), dtype=np.float32)
    if not program.reduces:
        for (cluster, number), bank in banks.items():
            rounded = bf16_values(bf16_bits(bank))
            _scatter(program, sizes, output, encoded.tiles[cluster, number], rounded, adds=False)
        return oriented(program, output)
    for column in range(shape.mesh_columns):
        for number in encoded.places[column].rounds:
            total = banks.get((column, number), _empty_bank(sizes))
            for row in range(1, shape.mesh_rows):
                total = add_flushed(total, banks.get((row * shape.mesh_columns + column, number), _empty_bank(sizes)))
            _scatter(
                program,
                sizes,
                output,
                encoded.tiles[column, number],
                total,
                adds=column >= columns_of_group(program, sizes),
            )
    return oriented(program, output)


def columns_of_group(program: Program, sizes: FabricSizes) -> int:
    """Mesh columns that share the output pieces; later groups add to what the first one gives."""
    return sizes.shape.mesh_columns // program.split


def oriented(program: Program, output: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Bits of the output, NaN made one, transposed where the right operand was the serial one."""
    bits = output.view(np.uint32)
    bits = np.where(np.isnan(output), np.uint32(QUIET_NAN), bits)
    return np.ascontiguousarray(bits.T if program.swapped else bits)


def _empty_bank(sizes: FabricSizes) -> NDArray[np.float32]:
    tile = sizes.shape.tile
    return np.zeros((sizes.shape.accumulator_tiles, tile, tile), dtype=np.float32)


def _fill_banks(
    program: Program,
    sizes: FabricSizes,
    encoded: Encoded,
    serial: NDArray[np.float32],
    parallel: NDArray[np.float32],
) -> dict[tuple[int, int], NDArray[np.float32]]:
    rows, tile = program.rows, sizes.shape.tile
    banks: dict[tuple[int, int], NDArray[np.float32]] = {}
    for cluster, place in enumerate(encoded.places):
        for item in place.items:
            number, depth, piece = (
                int(rows.round[item.packet]),
                int(rows.k_tile[item.packet]),
                int(rows.row_tile[item.packet]),
            )
            bank = banks.setdefault((cluster, number), _empty_bank(sizes))
            first = int(program.tile_first_row[piece])
            left = serial[first : first + int(program.tile_rows[piece]), depth * tile : (depth + 1) * tile]
            columns = place.blocks[int(rows.k_step[item.packet])]
            for rank, target in item.sums.items():
                right = parallel[depth * tile : (depth + 1) * tile, columns[rank] * tile : (columns[rank] + 1) * tile]
                _accumulate(bank[target], left, right)
    return banks


def _scatter(
    program: Program,
    sizes: FabricSizes,
    output: NDArray[np.float32],
    pieces: list[tuple[int, int]],
    bank: NDArray[np.float32],
    adds: bool,
) -> None:
    """Put pieces of a bank where they belong in the output, or add them to what is there."""
    tile = sizes.shape.tile
    for index, (piece, column) in enumerate(pieces):
        first, rows = int(program.tile_first_row[piece]), int(program.tile_rows[piece])
        target = output[first : first + rows, column * tile : (column + 1) * tile]
        values = bank[index, : target.shape[0], : target.shape[1]]
        target[...] = add_flushed(target, values) if adds else values


def add_flushed(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Float32 sums, rounded to the nearest, subnormals flushed to zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    return np.where(np.abs(total) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), total), total)


@compiled
def _accumulate(bank: NDArray[np.float32], left: NDArray[np.float32], right: NDArray[np.float32]) -> None:
    """``bank[row, column] += left[row, k] * right[k, column]`` by rising k, pairs with a zero left out."""
    least = np.float32(2.0**-126)
    zero = np.float32(0.0)
    for row in range(left.shape[0]):
        for k in range(left.shape[1]):
            value = left[row, k]
            if abs(value) < least:
                continue
            for column in range(right.shape[1]):
                factor = right[k, column]
                if abs(factor) < least:
                    continue
                product = np.float32(value * factor)
                if abs(product) < least:
                    product = np.float32(np.copysign(zero, product))
                total = np.float32(bank[row, column] + product)
                if abs(total) < least:
                    total = np.float32(np.copysign(zero, total))
                bank[row, column] = total
