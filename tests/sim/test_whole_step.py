"""Whole steps on every machine: products, vector work and their energy."""

import json

import numpy as np
import pytest

import acf
from acf.sim import ARCHITECTURES
from acf.sim.result import Result
from acf.trace import VectorOp

VECTOR_OPS = (
    VectorOp("fc", "batch_norm", "forward", 4096, 1),
    VectorOp("fc", "relu", "forward", 4096, 1),
    VectorOp("fc", "batch_norm", "backward", 4096, 1),
    VectorOp("fc", "sgd", "update", 4096, 2),
)


def trace_with(vector_ops: tuple[VectorOp, ...]) -> acf.Trace:
    ones = np.ones((64, 64))
    products = [acf.Matmul("fc", phase, ones, ones) for phase in ("forward", "weight_grad", "input_grad")]
    plain = acf.Trace.from_matmuls(products)
    return acf.Trace(plain.ops, plain.tensors, vector_ops=vector_ops)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_vector_work_lengthens_the_step_and_not_the_products(name: str) -> None:
    alone, whole = acf.simulate(trace_with(()), name), acf.simulate(trace_with(VECTOR_OPS), name)
    assert alone.step_cycles == alone.cycles == whole.cycles
    assert alone.step_utilization == alone.utilization
    assert whole.step is not None
    assert whole.cycles < whole.step_cycles
    assert whole.step.least_cycles <= whole.step_cycles <= whole.step.most_cycles
    assert whole.step_utilization < whole.utilization == alone.utilization
    assert whole.energy_j > alone.energy_j == pytest.approx(whole.products_energy_j)
    assert whole.products_speedup_over(alone) == 1.0
    assert whole.speedup_over(alone) < 1.0


def test_a_gpu_launches_its_fused_kernels_after_the_products() -> None:
    whole = acf.simulate(trace_with(VECTOR_OPS), "gpu-v100")
    launches = 4 * acf.sim.spec("gpu-v100").launch_cycles  # statistics; scaling; both for gradients; and the update
    assert whole.step_cycles >= whole.cycles + launches


def test_an_accelerator_with_its_own_update_engine_is_not_charged_twice() -> None:
    whole = acf.simulate(trace_with(VECTOR_OPS[-1:]), "sat")
    assert whole.vector_cycles == 0
    assert whole.dram_bytes > acf.simulate(trace_with(()), "sat").dram_bytes  # its state still crosses the pins


def test_the_vector_unit_has_an_area() -> None:
    assert acf.simulate(trace_with(()), "acf-512").area_mm2["vector"] > 0
    assert "vector" not in acf.simulate(trace_with(()), "gpu-v100").area_mm2


def test_a_whole_step_survives_json() -> None:
    result = acf.simulate(trace_with(VECTOR_OPS), "acf-512")
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_products_alone_can_be_had_from_any_trace() -> None:
    whole = trace_with(VECTOR_OPS)
    assert acf.simulate(whole.without_vector_work(), "acf-512") == acf.simulate(trace_with(()), "acf-512")
