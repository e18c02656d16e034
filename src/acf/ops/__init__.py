"""Block-sparse products as `torch.library` custom ops, with kernels for CPUs (`cpu`, `native`) and GPUs (`triton`).

`reference` defines what every op computes. `two_weights` has the products of N:M training, which are dense products
with masked weights.
"""

from acf.ops import cpu, flops, triton
from acf.ops.conv import block_conv2d, block_conv2d_gradient_norms
from acf.ops.conv_transpose import block_conv_transpose2d, transposed_output_size
from acf.ops.dense import dense_products
from acf.ops.dense_experts import dense_experts
from acf.ops.experts import block_experts, block_experts_gradient_norms
from acf.ops.gated import block_gated_mlp
from acf.ops.geometry import Conv2dGeometry
from acf.ops.graph_cache import tag_graph_cache
from acf.ops.linear import block_gradient_norms, block_linear
from acf.ops.mlp import MlpLayer, block_mlp
from acf.ops.observe import LayerIdentity, observe_weight_grad, stop_observing
from acf.ops.probe import probed
from acf.ops.statistics import batch_norm_after_conv2d, block_conv2d_for_batch_norm
from acf.ops.two_weights import conv2d_with_two_weights, linear_with_two_weights, mask_straight_through

__all__ = [
    "Conv2dGeometry",
    "LayerIdentity",
    "MlpLayer",
    "batch_norm_after_conv2d",
    "block_conv2d",
    "block_conv2d_for_batch_norm",
    "block_conv2d_gradient_norms",
    "block_conv_transpose2d",
    "block_experts",
    "block_experts_gradient_norms",
    "block_gated_mlp",
    "block_gradient_norms",
    "block_linear",
    "block_mlp",
    "conv2d_with_two_weights",
    "dense_experts",
    "dense_products",
    "linear_with_two_weights",
    "mask_straight_through",
    "observe_weight_grad",
    "probed",
    "stop_observing",
    "transposed_output_size",
]

tag_graph_cache()
cpu.register()
flops.register()
triton.register()
