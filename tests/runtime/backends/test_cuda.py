"""The GPU backend, where there is a GPU; elsewhere it is refused by name."""

import numpy as np
import pytest
import torch

from acf import runtime
from tests.runtime.products import SPARSE, random_operands, run


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_is_told_so() -> None:
    with pytest.raises(runtime.NoDeviceError, match="torch finds no CUDA device"):
        runtime.Device("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("phase", ["forward", "input_grad", "weight_grad"])
def test_products_agree_with_the_reference(phase: str) -> None:
    program = runtime.Program(runtime.Product(phase=phase, rows=32, weight=SPARSE))
    operands = random_operands(program)
    expected = run(runtime.Device("reference"), program, operands)
    np.testing.assert_allclose(run(runtime.Device("cuda"), program, operands), expected, rtol=0.02, atol=0.02)
