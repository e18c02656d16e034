"""What a prune/regrow update costs the fabric."""

from dataclasses import replace

import numpy as np
import pytest

import acf
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.algorithm1 import update_cost
from acf.sim.fabric.topology_unit import TopologyUnit
from acf.sim.registry import spec_of_kind
from acf.trace import BitTensor, TracedOp

SMALL = spec_of_kind(AdaptiveFabric, "acf-512", mesh_rows=2, mesh_columns=2, dram_pin_bytes_per_s=1e15)


def weight_gradient(kept_rows: int) -> acf.Trace:
    """A dense weight gradient of 128 x 128 over 256 tokens, of which the first rows are kept."""
    kept = np.zeros((128, 128), dtype=bool)
    kept[:kept_rows] = True
    ones = BitTensor.from_array(np.ones((256, 128), dtype=bool))
    tensors = {"gradient": ones, "activation": ones, "kept": BitTensor.from_array(kept)}
    op = TracedOp("fc", "weight_grad", "gradient", "activation", transpose_a=True, needed="kept")
    return acf.Trace([op], tensors)


def test_gradients_of_absent_blocks_cost_what_their_product_costs() -> None:
    trace = weight_gradient(32)
    result = acf.simulate(trace, SMALL)
    cost = update_cost([trace], SMALL, result)
    assert cost is not None
    complement = acf.simulate(weight_gradient(96), SMALL)  # as many outputs as are absent here
    assert cost.cycles["absent_gradients"] == pytest.approx(complement.cycles, rel=0.05)
    assert cost.energy_j["absent_gradients"] == pytest.approx(complement.products_energy_j, rel=0.05)
    assert cost.cycles["norms"] == 32 * 128 / 256
    kept = np.arange(64).reshape(8, 8) < 16
    assert cost.cycles["selection"] == TopologyUnit.of(SMALL).select_cycles(kept, round(0.3 * 16))


def test_a_rarer_update_takes_a_smaller_share_of_the_run() -> None:
    shares = []
    for every in (10, 100):
        spec, trace = replace(SMALL, topology_every_steps=every), weight_gradient(32)
        result = acf.simulate(trace, spec)
        cost = update_cost([trace], spec, result)
        assert cost is not None
        shares.append(cost.share_of_run(result.step_cycles))
    assert shares[0] > 5 * shares[1] > 0


def test_a_dense_step_has_nothing_to_update() -> None:
    trace = weight_gradient(32)
    dense = acf.Trace([replace(trace.ops[0], needed=None)], trace.tensors)
    assert update_cost([dense], SMALL, acf.simulate(dense, SMALL)) is None
