"""The ablations of the fabric: which part is varied how, and what is measured of every variation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acf.bench.fabric.ablation_figures import Figures, regrow_figures, step_figures, traffic_figures
from acf.bench.fabric.workloads import StepSpec
from acf.lowering import BALANCERS
from acf.lowering.fabric_shape import MAXIMUM_ACCUMULATOR_TILES
from acf.sim.fabric import AdaptiveFabric

UNEVEN = 1.0
"""Deviation of the log-normal chances of block rows: some keep several times as many blocks as others."""


@dataclass(frozen=True)
class Variation:
    """A place of a plot (``series``, ``value``) and what differs there: fields of the fabric and of the step."""

    series: str
    value: str
    fabric: dict[str, Any] = field(default_factory=dict)
    step: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ablation:
    """How to vary a fabric, what to measure, and which variation speedups refer to: its ``series`` and ``value``.

    A baseline with an empty series: the one of each series. ``note`` says how to read the table.
    """

    title: str
    axis: str
    vary: Callable[[AdaptiveFabric, StepSpec], list[Variation]]
    measures: tuple[str, ...]
    plotted: tuple[str, ...]
    note: str
    baseline: tuple[str, str] = ("", "")
    figures: Callable[[AdaptiveFabric, StepSpec, tuple[str, ...]], Figures] = step_figures


def vary_blocks(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """Blocks of layers of 8 to 64, and pieces of the machine of 8 to 32 in memories of the same bytes."""
    places = {16: (8, 16, 32, 64), 8: (8, 16), 32: (16, 32, 64)}
    return [
        Variation(f"tile {tile}", str(block), _tile_fields(base, tile), {"block": block})
        for tile, blocks in places.items()
        for block in blocks
    ]


def _tile_fields(base: AdaptiveFabric, tile: int) -> dict[str, Any]:
    """Another tile with as many bytes in every memory of a cluster, as far as a packet can name its blocks."""
    names = ("queue_packets", "parallel_slots", "accumulator_tiles", "prefetch_packets")
    sizes = {name: max(1, getattr(base, name) * base.tile**2 // tile**2) for name in names}
    sizes["accumulator_tiles"] = min(sizes["accumulator_tiles"], MAXIMUM_ACCUMULATOR_TILES)
    return sizes | {"tile": tile}


def vary_regrowth(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """A tenth to half of the kept blocks moved, every 10 to 1000 steps; and with few examples, in short steps."""
    steps: dict[str, dict[str, Any]] = {"": {}} | _few_examples(step)
    return [
        Variation(
            f"every {every} steps{told}", f"{moved:.0%} moved", {"topology_every_steps": every}, few | {"moved": moved}
        )
        for told, few in steps.items()
        for every in (10, 100, 1000)
        for moved in (0.1, 0.3, 0.5)
    ]


def _few_examples(step: StepSpec) -> dict[str, dict[str, Any]]:
    """A step of so few examples that they cannot be spread over the whole mesh, by name; none below 16 examples."""
    few = step.examples // 16
    return {f", {few:,} examples": {"examples": few}} if few else {}


def _topologies(step: StepSpec) -> dict[str, dict[str, Any]]:
    """Steps that are harder and harder to share out: fewer examples leave fewer ways to spread them over the mesh."""
    uneven = {"skew": UNEVEN}
    few = {f"uneven rows{told}": uneven | fields for told, fields in _few_examples(step).items()}
    return {"even rows": {}, "uneven rows": uneven} | few


def vary_interconnect(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """The mapping of a dense layer, the rebalanced mesh, and links that cost nothing, on the same three steps."""
    return [
        Variation(topology, interconnect, {"interconnect": interconnect}, fields)
        for topology, fields in _topologies(step).items()
        for interconnect in ("static", "mesh", "crossbar")
    ]


def vary_balancer(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """Every balancer on even rows, on uneven rows, and on uneven rows with few examples."""
    return [
        Variation(topology, balancer, {"balancer": balancer}, fields)
        for topology, fields in _topologies(step).items()
        for balancer in BALANCERS
    ]


def vary_prefetch(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """Packets requested ahead and packets queued in a cluster, 1 to 64, while every tensor streams from DRAM.

    On-chip memory keeps nothing and DRAM has a quarter of its bandwidth, for otherwise it would hardly be seen.
    """
    streaming = {"on_chip_bytes": 1, "dram_pin_bytes_per_s": base.dram_pin_bytes_per_s / 4}
    return [
        Variation(name.removesuffix("_packets"), str(2**power), streaming | {name: 2**power})
        for name in ("prefetch_packets", "queue_packets")
        for power in range(7)
    ]


def vary_units(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """64 to 16,384 MACs, by a larger mesh alone, and by wider units once the mesh has 16 x 16 clusters.

    Links are as wide as lanes ask for; DRAM and vector unit grow with the MACs.
    """
    meshes = [(2, 4, 1), (4, 4, 1), (4, 8, 1), (8, 8, 1), (8, 16, 1), (16, 16, 1)]
    larger = [*meshes, (16, 32, 1), (32, 32, 1), (32, 64, 1)]
    wider = [(16, 16, 1), (16, 16, 2), (16, 16, 4), (16, 16, 8)]
    shapes = {"larger mesh": larger, "wider units": wider}
    return [
        Variation(series, f"{rows * columns * 8 * lanes:,}", _scaled_fields(base, rows, columns, lanes))
        for series, sizes in shapes.items()
        for rows, columns, lanes in sizes
    ]


def _scaled_fields(base: AdaptiveFabric, rows: int, columns: int, lanes: int) -> dict[str, Any]:
    units = 8
    scale = rows * columns * units * lanes / base.macs_per_cycle
    return {
        "mesh_rows": rows,
        "mesh_columns": columns,
        "scus_per_cluster": units,
        "lanes": lanes,
        "link_bytes": max(32, 16 * lanes),
        "vector_lanes": max(1, round(base.vector_lanes * scale)),
        "dram_pin_bytes_per_s": base.dram_pin_bytes_per_s * scale,
    }


LOSSES = ("lost_imbalance", "lost_memory", "lost_mesh", "lost_drain", "lost_fill", "lost_inside")

ABLATIONS: dict[str, Ablation] = {
    "block": Ablation(
        "Size of blocks",
        "block of the layers",
        vary_blocks,
        ("cycles", "speedup", "utilization", "dram_bytes", "energy_j"),
        ("utilization", "energy_j"),
        "At equal sparsity. Tiles are the machine's pieces; another tile keeps the bytes of every memory. "
        "Speedup of the whole step over block 16 on tile 16.",
        ("tile 16", "16"),
    ),
    "regrow": Ablation(
        "Blocks that move",
        "kept blocks moved per update",
        vary_regrowth,
        ("cycles", "stale_cycles", "gain", "controller_cycles", "controller_share", "pays_after_steps"),
        ("gain", "controller_share"),
        "Cycles of products with the work shared anew and with the mapping of before the move kept. The speedup is "
        "of whole steps, the controller's cycles spread over the steps between updates; above 1, rebalancing pays. "
        "With the mapping kept, the controller still writes the table of the new blocks.",
        figures=regrow_figures,
    ),
    "interconnect": Ablation(
        "Interconnect",
        "interconnect",
        vary_interconnect,
        ("cycles", "speedup", "utilization", *LOSSES),
        ("speedup", "utilization"),
        "Static: the mapping of a dense layer; mesh: shared anew for every topology; crossbar: links without width or "
        "latency. Uneven rows: chances of block rows are log-normal with deviation 1. "
        "Speedup of the whole step over static.",
        ("", "static"),
        traffic_figures,
    ),
    "balancer": Ablation(
        "Balancer",
        "balancer",
        vary_balancer,
        ("cycles", "speedup", "utilization", "flits", "controller_cycles", "controller_share"),
        ("speedup", "flits"),
        "Flits are those that controllers send; the controller's share is of the step, its cycles spread over steps "
        "between two updates. Uneven rows: chances of block rows are log-normal with deviation 1. "
        "Speedup of the whole step over round robin.",
        ("", "round-robin"),
        traffic_figures,
    ),
    "prefetch": Ablation(
        "Prefetch and queues",
        "packets",
        vary_prefetch,
        ("cycles", "speedup", "utilization", "lost_memory", "lost_mesh", "lost_imbalance", "area_mm2"),
        ("utilization", "lost_memory"),
        "Every tensor streams from DRAM of a quarter of the machine's bandwidth; areas are without "
        "on-chip memory and prefetch buffers. Speedup of the whole step over one packet.",
        ("", "1"),
    ),
    "scus": Ablation(
        "Number of units",
        "MACs per cycle",
        vary_units,
        ("seconds", "speedup", "scaling", "utilization", *LOSSES[:4], "energy_j", "area_mm2"),
        ("utilization", "scaling"),
        "Clusters of 8 units; DRAM bandwidth and vector unit grow with the MACs, the clock stays. Scaling efficiency: "
        "speedup over 64 MACs by how many times as many there are.",
        ("larger mesh", "64"),
    ),
}
"""The ablations by name."""
