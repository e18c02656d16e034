"""The power of a fabric while its gates compute a product, with the model beside them."""

from dataclasses import replace

from acf.errors import RtlError
from acf.lowering import FabricShape
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.power import GateSimulation, PowerReport, weigh_toggles
from acf.rtl.verify.benches.fabric_bench import FabricBench
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.products import Product, sizes_for
from acf.rtl.verify.lockstep.run import run_lockstep


def measure_fabric_power(
    shape: FabricShape, product: Product, liberty: Liberty | None = None, clock_gating: bool = False
) -> PowerReport:
    """What the gates of a fabric switch from the start of a product to its end; loading is not in it.

    The gates must equal the model in every event and bit. The memories of the test bench are not counted.
    """
    sizes = replace(sizes_for(shape, [product]), products=False)
    gates = GateSimulation(FabricBench(sizes), liberty, recorded="run", optimise="-O0", clock_gating=clock_gating)
    both = run_lockstep(product, FabricSimulation(sizes, gates))
    if both.divergence is not None:
        raise RtlError(f"the gates do not compute what the model does: {both.divergence}; report this as a bug")
    return weigh_toggles(gates, "fabric", liberty, below="top.fabric")
