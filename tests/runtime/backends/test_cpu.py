"""The CPU kernels agree with the reference in every pass, dense and sparse, linear and convolution."""

import numpy as np
import pytest

from acf import runtime
from acf.trace.op import PHASES, TracedConv
from tests.runtime.products import FILTERS, SPARSE, STRIDED, random_operands, run

LAYERS: dict[str, tuple[runtime.WeightBlocks, TracedConv | None]] = {
    "sparse linear": (SPARSE, None),
    "dense linear": (runtime.WeightBlocks.dense(12, 20), None),
    "sparse convolution": (FILTERS, STRIDED),
    "dense convolution": (runtime.WeightBlocks.dense(16, 48), STRIDED),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("layer", LAYERS)
def test_products_agree_with_the_reference(layer: str, phase: str) -> None:
    weight, conv = LAYERS[layer]
    program = runtime.Program(
        runtime.Product(phase=phase, rows=3, weight=weight, conv=conv, operand_dtype="fp32", result_dtype="fp32")
    )
    operands, device = random_operands(program), runtime.Device("cpu")
    expected = run(runtime.Device("reference"), program, operands)
    np.testing.assert_allclose(run(device, program, operands), expected, rtol=1e-4, atol=1e-4)
    assert device.timeline.usage().busy_s["compute"] > 0
