"""Block-sparse products as `torch.library` custom ops: schema, fake and autograd rules; `reference` is the oracle."""

from acf.ops import cpu, triton
from acf.ops.conv import Conv2dGeometry, block_conv2d, block_conv2d_gradient_norms
from acf.ops.linear import block_gradient_norms, block_linear
from acf.ops.observe import observe_weight_grad, stop_observing

__all__ = [
    "Conv2dGeometry",
    "block_conv2d",
    "block_conv2d_gradient_norms",
    "block_gradient_norms",
    "block_linear",
    "observe_weight_grad",
    "stop_observing",
]

cpu.register()
triton.register()
