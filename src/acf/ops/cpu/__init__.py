"""CPU kernels of the block-sparse ops: C++ (`acf/ops/native`), built on first use and called through ctypes."""

from acf.ops import conv, linear, mlp, statistics, whole_mlp
from acf.ops import experts as expert_ops
from acf.ops.cpu import both_layers, experts, kernels
from acf.ops.observe import observed

__all__ = ["register"]


def register() -> None:
    """Make these the CPU kernels of the custom ops; nothing is compiled before an op is called."""
    linear.block_linear_forward.register_kernel("cpu", kernels.block_linear)
    linear.block_linear_input_grad.register_kernel("cpu", kernels.block_linear_input_grad)
    linear.block_linear_weight_grad.register_kernel("cpu", observed(kernels.block_linear_weight_grad))
    linear.linear_gradient_norms.register_kernel("cpu", kernels.block_gradient_norms)
    expert_ops.block_experts_forward.register_kernel("cpu", experts.block_experts)
    expert_ops.block_experts_input_grad.register_kernel("cpu", experts.block_experts_input_grad)
    expert_ops.block_experts_weight_grad.register_kernel("cpu", observed(experts.block_experts_weight_grad))
    expert_ops.experts_gradient_norms.register_kernel("cpu", experts.block_experts_gradient_norms)
    mlp.block_linear_activation.register_kernel("cpu", kernels.block_linear_activation)
    mlp.block_linear_scaled_input_grad.register_kernel("cpu", kernels.block_linear_scaled_input_grad)
    whole_mlp.block_mlp_forward.register_kernel("cpu", both_layers.block_mlp_forward)
    whole_mlp.block_mlp_backward.register_kernel("cpu", both_layers.block_mlp_backward)
    conv.block_conv2d_forward.register_kernel("cpu", kernels.block_conv2d)
    conv.block_conv2d_input_grad.register_kernel("cpu", kernels.block_conv2d_input_grad)
    conv.block_conv2d_weight_grad.register_kernel("cpu", observed(kernels.block_conv2d_weight_grad))
    conv.conv2d_gradient_norms.register_kernel("cpu", kernels.block_conv2d_gradient_norms)
    statistics.block_conv2d_statistics.register_kernel("cpu", kernels.block_conv2d_statistics)
