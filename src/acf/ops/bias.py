"""The gradient of a bias as a custom op: column sums of an output gradient, in float32."""

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.library import Op


def _fake_bias_grad(output_grad: Tensor, dtype: torch.dtype) -> Tensor:
    return output_grad.new_empty(output_grad.shape[1], dtype=dtype)


bias_grad = Op("bias_grad", "(Tensor output_grad, ScalarType dtype) -> Tensor", reference.bias_grad, _fake_bias_grad)
"""Sum of ``output_grad [tokens, out]`` or ``[batch, out, h, w]`` over all axes but the second: ``dtype [out]``."""
