"""The ablations of the fabric: which parameters each one varies, and what it measures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acf.bench.fabric.ablation_figures import Figures, regrow_figures, step_figures, traffic_figures
from acf.bench.fabric.workloads import StepSpec
from acf.lowering import BALANCERS
from acf.lowering.fabric_shape import MAXIMUM_ACCUMULATOR_TILES
from acf.sim.fabric import AdaptiveFabric

UNEVEN = 1.0
"""Standard deviation of the log-normal weights of block rows: some rows keep several times as many blocks as others."""


@dataclass(frozen=True)
class Variation:
    """One point of a plot (``series``, ``value``), and the fields of the fabric and of the step that differ there."""

    series: str
    value: str
    fabric: dict[str, Any] = field(default_factory=dict)
    step: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ablation:
    """How to vary a fabric, which measures to tabulate and plot, and how to read the table (``note``).

    ``baseline``: series and value that speedups refer to; an empty series means each series has its own.
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
    """Pruning blocks of 8 to 64 and machine tiles of 8 to 32, every memory keeping its size in bytes."""
    places = {16: (8, 16, 32, 64), 8: (8, 16), 32: (16, 32, 64)}
    return [
        Variation(f"tile {tile}", str(block), _tile_fields(base, tile), {"block": block})
        for tile, blocks in places.items()
        for block in blocks
    ]


def _tile_fields(base: AdaptiveFabric, tile: int) -> dict[str, Any]:
    """Another tile size; every memory of a cluster keeps its bytes, within the blocks that a packet can address."""
    names = ("queue_packets", "parallel_slots", "accumulator_tiles", "prefetch_packets")
    sizes = {name: max(1, getattr(base, name) * base.tile**2 // tile**2) for name in names}
    sizes["accumulator_tiles"] = min(sizes["accumulator_tiles"], MAXIMUM_ACCUMULATOR_TILES)
    return sizes | {"tile": tile}


def vary_regrowth(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """10 % to 50 % of kept blocks moved every 10 to 1000 training steps; and the same with few examples."""
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
    """A step with 1/16 of the examples, too few to spread over the whole mesh, by label; none below 16 examples."""
    few = step.examples // 16
    return {f", {few:,} examples": {"examples": few}} if few else {}


def _topologies(step: StepSpec) -> dict[str, dict[str, Any]]:
    """Steps that are harder and harder to balance: fewer examples leave fewer ways to spread them over the mesh."""
    uneven = {"skew": UNEVEN}
    few = {f"uneven rows{told}": uneven | fields for told, fields in _few_examples(step).items()}
    return {"even rows": {}, "uneven rows": uneven} | few


def vary_interconnect(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """A static mapping, the rebalanced mesh, and an ideal crossbar, on the same three steps."""
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
    """Prefetch depth and queue depth of a cluster, 1 to 64 packets, while every tensor streams from DRAM.

    On-chip memory is off and DRAM has a quarter of its bandwidth, or neither depth would matter.
    """
    streaming = {"on_chip_bytes": 1, "dram_pin_bytes_per_s": base.dram_pin_bytes_per_s / 4}
    return [
        Variation(name.removesuffix("_packets"), str(2**power), streaming | {name: 2**power})
        for name in ("prefetch_packets", "queue_packets")
        for power in range(7)
    ]


def vary_network(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """Lines with one sender each against packet-switched routers, with links of the base's width and half of it.

    A quarter of the examples: routers are stepped in every cycle.
    """
    fewer = {"examples": max(1, step.examples // 4)}
    return [
        Variation(f"links of {width} bytes", label, {"interconnect": interconnect, "link_bytes": width}, fewer)
        for width in (base.link_bytes, base.link_bytes // 2)
        for label, interconnect in (("lines", "mesh"), ("packets", "packet"))
    ]


def vary_memory(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """DRAM as a sustained rate and as `acf.sim.dram` times it, with on-chip memory, without, and with slow DRAM."""
    streaming: dict[str, Any] = {"on_chip_bytes": 1}
    slow = streaming | {"dram_pin_bytes_per_s": base.dram_pin_bytes_per_s / 4}
    settings = {"as shipped": {}, "every tensor streams": streaming, "the same from a quarter of the bandwidth": slow}
    return [
        Variation(series, model, fields | {"memory_model": model})
        for series, fields in settings.items()
        for model in ("rate", "timed")
    ]


def vary_scus(base: AdaptiveFabric, step: StepSpec) -> list[Variation]:
    """64 to 16,384 MACs, by a larger mesh alone, and by wider SCUs once the mesh has 16 x 16 clusters.

    Link width follows the lanes; DRAM bandwidth and vector lanes scale with the MACs.
    """
    meshes = [(2, 4, 1), (4, 4, 1), (4, 8, 1), (8, 8, 1), (8, 16, 1), (16, 16, 1)]
    larger = [*meshes, (16, 32, 1), (32, 32, 1), (32, 64, 1)]
    wider = [(16, 16, 1), (16, 16, 2), (16, 16, 4), (16, 16, 8)]
    shapes = {"larger mesh": larger, "wider SCUs": wider}
    return [
        Variation(series, f"{rows * columns * 8 * lanes:,}", _scaled_fields(base, rows, columns, lanes))
        for series, sizes in shapes.items()
        for rows, columns, lanes in sizes
    ]


def _scaled_fields(base: AdaptiveFabric, rows: int, columns: int, lanes: int) -> dict[str, Any]:
    scus = 8
    scale = rows * columns * scus * lanes / base.macs_per_cycle
    return {
        "mesh_rows": rows,
        "mesh_columns": columns,
        "scus_per_cluster": scus,
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
        "At equal sparsity. A tile is what the machine moves; another tile size keeps the bytes of every memory. "
        "Speedup of the whole step over block 16 on tile 16.",
        ("tile 16", "16"),
    ),
    "regrow": Ablation(
        "Blocks that move",
        "kept blocks moved per update",
        vary_regrowth,
        ("cycles", "stale_cycles", "gain", "controller_cycles", "controller_share", "pays_after_steps"),
        ("gain", "controller_share"),
        "Cycles of products, rebalanced after the move or with the mapping from before it. The speedup is of whole "
        "steps, the controller's cycles amortised over the steps between updates; above 1, rebalancing pays. "
        "With the old mapping, the controller still writes the table of the new blocks.",
        figures=regrow_figures,
    ),
    "interconnect": Ablation(
        "Interconnect",
        "interconnect",
        vary_interconnect,
        ("cycles", "speedup", "utilization", *LOSSES),
        ("speedup", "utilization"),
        "Static: the mapping of a dense layer; mesh: rebalanced for every topology; crossbar: links of unlimited width "
        "and no latency. Uneven rows: weights of block rows are log-normal with deviation 1. "
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
        "Flits are those that controllers send; the controller's share is of the step, its cycles amortised over the "
        "steps between two updates. Uneven rows: weights of block rows are log-normal with deviation 1. "
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
    "network": Ablation(
        "Lines against packets",
        "interconnect",
        vary_network,
        ("cycles", "speedup", "utilization", *LOSSES),
        ("speedup", "utilization"),
        "Lines: one sender per link, no arbitration; packets: the routers of docs/mesh.md, stepped in every cycle for "
        "up to 8,000 packets of a product. Speedup of the whole step over lines.",
        ("", "lines"),
    ),
    "memory": Ablation(
        "DRAM model",
        "memory model",
        vary_memory,
        ("cycles", "speedup", "utilization", "lost_memory", "lost_mesh", "lost_imbalance"),
        ("utilization", "lost_memory"),
        "Rate: serial tiles at the sustained share of the peak, parallel tiles at once; timed: every burst of both "
        "operands at the peak, with row misses, turnarounds, refresh and on-chip bank conflicts. Speedup of the whole "
        "step over rate.",
        ("", "rate"),
    ),
    "scus": Ablation(
        "Number of SCUs",
        "MACs per cycle",
        vary_scus,
        ("seconds", "speedup", "scaling", "utilization", *LOSSES[:4], "energy_j", "area_mm2"),
        ("utilization", "scaling"),
        "Clusters of 8 SCUs; DRAM bandwidth and vector unit grow with the MACs, the clock stays. Scaling efficiency: "
        "speedup over 64 MACs by how many times as many there are.",
        ("larger mesh", "64"),
    ),
}
"""The ablations by name."""
