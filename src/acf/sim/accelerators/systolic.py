"""Cycles of one matrix product on SAT's systolic array, weight- or output-stationary.

A PE adds one product per cycle to an accumulation, but the next term of the *same* accumulation has to wait for the
floating-point adder. ``interleave`` accumulations take turns in a PE to fill that time.
"""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Array:
    """``rows`` x ``columns`` PEs, the adder's latency, and how many accumulations a PE keeps open."""

    rows: int
    columns: int
    adder_latency_cycles: int
    interleave: int


@dataclass(frozen=True)
class ProductMapping:
    """How a product runs: cycles of work, of waiting for adders, and of filling the array; values moved on chip.

    ``streamed_values`` are operands read into the array, ``partial_sums`` results that leave it or come back.
    """

    dataflow: str
    work_cycles: int
    latency_cycles: int
    fill_cycles: int
    streamed_values: int
    partial_sums: int

    @property
    def cycles(self) -> int:
        """All cycles of the array."""
        return self.work_cycles + self.latency_cycles + self.fill_cycles


def output_stationary(array: Array, m: int, steps: int, n: int) -> ProductMapping:
    """``m x n`` sums stay in the PEs, ``steps`` terms each stream by.

    The accumulations of a PE lie side by side along rows, along columns, or both: whichever takes fewest cycles.
    """
    return min(
        (_output_tiles(array, m, steps, n, along_m) for along_m in range(1, array.interleave + 1)),
        key=lambda mapping: mapping.cycles,
    )


def _output_tiles(array: Array, m: int, steps: int, n: int, along_m: int) -> ProductMapping:
    along_n = array.interleave // along_m
    work, total = 0, 0
    row_tiles, column_tiles = _tiles(m, array.rows, along_m), _tiles(n, array.columns, along_n)
    for row_count, row_depth in row_tiles:
        for column_count, column_depth in column_tiles:
            depth = row_depth * column_depth
            work += row_count * column_count * steps * depth
            total += row_count * column_count * steps * max(depth, array.adder_latency_cycles)
    streamed = steps * (m * sum(count for count, _ in column_tiles) + n * sum(count for count, _ in row_tiles))
    fill = array.rows + array.columns - 2 + array.adder_latency_cycles
    return ProductMapping("output-stationary", work, total - work, fill, streamed, m * n)


def _tiles(size: int, lanes: int, depth: int) -> list[tuple[int, int]]:
    """How ``size`` splits into tiles of ``lanes * depth``: (tiles, accumulations per PE), the last may be thinner."""
    whole, rest = divmod(size, lanes * depth)
    tiles = [(whole, depth)] if whole else []
    return [*tiles, (1, ceil(rest / lanes))] if rest else tiles


def weight_stationary(array: Array, m: int, groups: int, steps_per_group: int, n: int) -> ProductMapping:
    """Every PE holds one group of weights; ``m`` rows stream by and sums move down the columns.

    The next weights shift in behind the work, ``rows * steps_per_group`` cycles; the first are waited for.
    """
    group_tiles, column_tiles = ceil(groups / array.rows), ceil(n / array.columns)
    tiles = group_tiles * column_tiles
    whole, rest = divmod(m, array.interleave)
    latency = array.adder_latency_cycles
    turns = whole * max(array.interleave, latency) + (max(rest, latency) if rest else 0)
    load = array.rows * steps_per_group
    waits = (tiles - 1) * max(0, load - turns * steps_per_group)
    fill = load + waits + array.rows + array.columns - 2 + latency
    streamed = m * groups * steps_per_group * column_tiles + groups * steps_per_group * n
    work = tiles * m * steps_per_group
    return ProductMapping(
        "weight-stationary",
        work,
        tiles * turns * steps_per_group - work,
        fill,
        streamed,
        m * n * (2 * group_tiles - 1),
    )
