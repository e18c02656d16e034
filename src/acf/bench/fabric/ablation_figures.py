"""What an ablation measures of one step on one fabric: time, MAC slots, traffic, energy and controller cycles."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from acf.bench.fabric.workloads import StepSpec, layer_traces
from acf.lowering import Gemm, matrix_products
from acf.lowering.mapping import choose_mapping, keep_mapping
from acf.lowering.packing import lower_product
from acf.lowering.tiled_product import tile_product
from acf.sim import simulate
from acf.sim.accelerator import ComputeCount
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.index_traffic import index_traffic
from acf.sim.fabric.runner import run_product
from acf.sim.fabric.topology_update import table_cycles, topology_update_cycles
from acf.sim.memory import DramTraffic
from acf.sim.result import Result
from acf.trace import Trace

NAMED_LOSSES = ("imbalance", "memory", "mesh", "drain", "fill")
Figures = dict[str, float]


def step_figures(fabric: AdaptiveFabric, step: StepSpec, prefixes: tuple[str, ...]) -> Figures:
    """Totals over the layers of a step whose names start with one of ``prefixes``; no prefix: over all."""
    return _totals(fabric, [simulate(trace, fabric) for trace in layer_traces(step, prefixes)])


def traffic_figures(fabric: AdaptiveFabric, step: StepSpec, prefixes: tuple[str, ...]) -> Figures:
    """`step_figures`, and the flits that controllers send and the cycles the controller needs to rebalance the work."""
    results, sums = [], Counter[str]()
    for trace in layer_traces(step, prefixes):
        results.append(simulate(trace, fabric))
        for gemm in (gemm for op in trace.ops for gemm in matrix_products(trace, op) if gemm.dense_macs):
            product = tile_product(gemm, fabric)
            program = lower_product(product, fabric)
            sums["flits"] += int(program.rows.flits.sum()) + int(program.columns.flits.sum())
            sums["controller_cycles"] += topology_update_cycles(
                fabric, product, program.split if program.reduces else 0
            )
    totals = _totals(fabric, results)
    return totals | dict(sums) | {"controller_share": _share(fabric, sums["controller_cycles"], totals)}


def regrow_figures(fabric: AdaptiveFabric, step: StepSpec, prefixes: tuple[str, ...]) -> Figures:
    """A step after blocks moved: rebalanced, against the mapping from before, and when rebalancing pays.

    With the old mapping, the controller only writes the table of the new blocks.
    """
    fabric_alone = replace(fabric, topology_every_steps=1)  # the update interval changes no product
    totals, kept = _rebalanced_and_kept(fabric_alone, step, prefixes)
    every = fabric.topology_every_steps
    saved = kept.cycles - totals["cycles"]
    extra = kept.update_cycles - kept.table_cycles
    vector = totals["step_cycles"] - totals["cycles"] - kept.update_cycles
    rebalanced_step = totals["cycles"] + vector + kept.update_cycles / every
    kept_step = kept.cycles + vector + kept.table_cycles / every
    return (
        totals
        | {
            "step_cycles": rebalanced_step,
            "seconds": rebalanced_step / fabric.clock_hz,
            "stale_cycles": kept.cycles,
            "controller_cycles": kept.update_cycles,
            "controller_share": kept.update_cycles / every / rebalanced_step,
            "gain": kept_step / rebalanced_step,
        }
        | ({"pays_after_steps": extra / saved} if saved > 0 else {})
    )


class Kept(NamedTuple):
    """A step with the mapping from before blocks moved: cycles of its products and of the controller."""

    cycles: int
    update_cycles: int
    table_cycles: int


@lru_cache(maxsize=8)
def _rebalanced_and_kept(fabric: AdaptiveFabric, step: StepSpec, prefixes: tuple[str, ...]) -> tuple[Figures, Kept]:
    results, kept = [], Kept(0, 0, 0)
    pairs = zip(layer_traces(replace(step, moved=0.0), prefixes), layer_traces(step, prefixes), strict=True)
    for before, after in pairs:
        results.append(simulate(after, fabric))
        kept = Kept(
            *(one + other for one, other in zip(kept, _play_kept(before, after, results[-1], fabric), strict=True))
        )
    return _totals(fabric, results), kept


def _play_kept(before: Trace, after: Trace, rebalanced: Result, fabric: AdaptiveFabric) -> Kept:
    """Simulate ``after`` with the mappings of ``before``; DRAM traffic is that of the ``rebalanced`` result."""
    cycles, update, table = 0, 0, 0
    previous = ComputeCount(0, 0, 0)
    for op_before, op, played in zip(before.ops, after.ops, rebalanced.ops, strict=True):
        products = matrix_products(after, op)
        moved = DramTraffic(played.left_bytes, played.right_bytes, played.written_bytes)
        traffic = moved.divided(len(products))
        if op.batched:  # no weight among the operands, so there is no mapping to keep
            compute = fabric.count_batch((gemm for gemm in products if gemm.dense_macs), traffic)
        else:
            pairs = zip(matrix_products(before, op_before), products, strict=True)
            compute, cost = _count_kept(fabric, pairs, traffic)
            update, table = update + cost.update_cycles, table + cost.table_cycles
        previous = compute.after(previous)
        cycles += max(previous.cycles, fabric.dram_cycles(played.dram_bytes))
    return Kept(cycles, update, table)


def _count_kept(
    fabric: AdaptiveFabric, pairs: Iterable[tuple[Gemm, Gemm]], traffic: DramTraffic
) -> tuple[ComputeCount, Kept]:
    """Products after blocks moved, each with the mapping of the product before, and the controller's cycles."""
    compute, update, table = ComputeCount(0, 0, 0), 0, 0
    for gemm_before, gemm in pairs:
        if not gemm.dense_macs:
            continue
        product_before = tile_product(gemm_before, fabric)
        product = tile_product(gemm, fabric, product_before.swapped)
        mapping = keep_mapping(choose_mapping(product_before, fabric), product_before, product, fabric)
        program = lower_product(product, fabric, mapping)
        index = index_traffic(mapping, product, fabric, fabric.walking_controllers)
        compute += run_product(fabric, gemm, product, program, traffic, index)
        split = program.split if program.reduces else 0
        update += topology_update_cycles(fabric, product, split)
        table += table_cycles(fabric, product, split)
    return compute, Kept(compute.cycles, update, table)


def _totals(fabric: AdaptiveFabric, results: list[Result]) -> Figures:
    """Sums over layers; losses as fractions of all MAC slots."""
    cycles = sum(result.cycles for result in results)
    controller = sum(op.other_cycles for result in results for op in result.ops)
    step_cycles = sum(result.step_cycles for result in results) + controller
    lost: Counter[str] = Counter()
    for result in results:
        for reason, lost_cycles in result.stalls.items():
            lost[reason if reason in NAMED_LOSSES else "inside"] += lost_cycles  # type: ignore[assignment]
    return {
        "cycles": cycles,
        "step_cycles": step_cycles,
        "seconds": step_cycles / fabric.clock_hz,
        "utilization": sum(result.utilization * result.cycles for result in results) / cycles,
        "dram_bytes": sum(result.dram_bytes for result in results),
        "energy_j": sum(result.energy_j for result in results),
        "macs": fabric.macs_per_cycle,
        "area_mm2": sum(fabric.area_mm2.values()),
    } | {f"lost_{reason}": lost[reason] / cycles for reason in (*NAMED_LOSSES, "inside")}


def _share(fabric: AdaptiveFabric, controller_cycles: int, totals: Figures) -> float:
    return controller_cycles / fabric.topology_every_steps / totals["step_cycles"]
