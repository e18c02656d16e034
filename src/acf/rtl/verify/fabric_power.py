"""The power of a fabric while its gates compute a product, with the model beside them."""

from collections.abc import Sequence
from dataclasses import replace

from acf.errors import RtlError
from acf.lowering import FabricShape
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.part_gates import Parts
from acf.rtl.tools.reports.power import GateSimulation, PowerReport, weigh_toggles
from acf.rtl.verify.benches.fabric_bench import FabricBench
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.products import Product, sizes_for
from acf.rtl.verify.lockstep.run import Lockstep, run_lockstep
from acf.sim.fabric.traffic import WORK

SCU_PARTS = Parts("first_cluster", ("datapath_0", "walker_0", "port_0"), rtl="adder|multiplier")
"""An SCU without its multipliers and adders, and its port."""


def measure_fabric_power(
    shape: FabricShape, product: Product, liberty: Liberty | None = None, clock_gating: bool = False
) -> PowerReport:
    """What the gates of a fabric switch from the start of a product to its end; loading is not in it.

    The gates must equal the model in every event and bit. The memories of the test bench are not counted.
    """
    sizes = replace(sizes_for(shape, [product]), products=False)
    gates = GateSimulation(FabricBench(sizes), liberty, recorded="run", optimise="-O0", clock_gating=clock_gating)
    _run(product, FabricSimulation(sizes, gates))
    return weigh_toggles(gates, "fabric", liberty, below="top.fabric")


def measure_scu_power(shape: FabricShape, products: Sequence[Product], clock_gating: bool = False) -> list[PowerReport]:
    """What one SCU and its port switch in a cycle of work, while one cluster of the fabric computes each product.

    Only they are gates, in gate inputs; multipliers, adders and performance counters are not in it. Waiting cycles of
    the run count as part of its cycles of work.
    """
    one_cluster = replace(shape, mesh_rows=1, mesh_columns=1, stall_counters="all")
    sizes = replace(sizes_for(one_cluster, list(products)), products=False)
    gates = GateSimulation(
        FabricBench(sizes), recorded="run", optimise="-O0", clock_gating=clock_gating, parts=SCU_PARTS
    )
    fabric = FabricSimulation(sizes, gates)
    return [_scu_report(gates, _run(product, fabric)) for product in products]


def _scu_report(gates: GateSimulation, run: Lockstep) -> PowerReport:
    """The toggles of the last run, over its cycles of work."""
    counters = run.fabric.scu_cycles
    assert counters is not None
    work_cycles = int(counters[0, WORK])
    reports = {
        part: weigh_toggles(gates, part, None, below=f"top.fabric.cluster_0_0.{part}") for part in SCU_PARTS.instances
    }
    share = gates.recorded_cycles / work_cycles

    def scaled(name: str) -> dict[str, float]:
        return {key: value * share for each in reports.values() for key, value in getattr(each, name).items()}

    modules, clocks = scaled("modules"), scaled("clocks")
    switched, clock = sum(modules.values()), sum(clocks.values())
    return PowerReport("scu", work_cycles, switched, clock, scaled("instances"), modules, clocks, "gate inputs")


def _run(product: Product, fabric: FabricSimulation) -> Lockstep:
    both = run_lockstep(product, fabric)
    if both.divergence is not None:
        raise RtlError(f"the gates do not compute what the model does: {both.divergence}; report this as a bug")
    return both
