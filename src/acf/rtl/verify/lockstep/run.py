"""One product on the model and on the gates."""

from dataclasses import dataclass

from acf.lowering import Program
from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
from acf.rtl.verify.lockstep.model import run_model
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.lockstep.record import Divergence, Record, first_divergence


@dataclass(frozen=True, eq=False)
class Lockstep:
    """The two records of a product and the first difference between them, if any."""

    model: Record
    fabric: Record
    divergence: Divergence | None
    program: Program


def run_lockstep(product: Product, fabric: FabricSimulation) -> Lockstep:
    """Run a product on the model and on the gates."""
    encoded = product.encode(fabric.sizes)
    stalls = product.stalls(encoded.program)
    model = run_model(encoded, stalls)
    found = fabric.run(encoded, stalls, model.cycles)
    return Lockstep(model, found, first_divergence(model, found), encoded.program)
