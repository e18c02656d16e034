"""CUDA implementations of the block-sparse ops and of 2:4 pruning, written in Triton.

`register` gives the ops of `acf.ops` their CUDA kernels; Triton is imported when the first of them is called. Problems
the kernels do not take (other block sizes, rectangular blocks, float64) run the reference, and so does everything
where Triton is not installed.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from acf.ops import bias as bias_ops
from acf.ops import conv as conv_ops
from acf.ops import experts as expert_ops
from acf.ops import gated as gated_ops
from acf.ops import linear as linear_ops
from acf.ops import mlp as mlp_ops
from acf.ops import statistics as statistics_ops
from acf.ops.library import Op
from acf.ops.observe import observed
from acf.ops.semi_structured import product as semi_structured_ops
from acf.ops.triton.version import check_triton_on

__all__ = ["register"]

# For each op the module of this package and the function in it.
_KERNELS: tuple[tuple[Op[Any], str, str], ...] = (
    (linear_ops.block_linear_forward, "product", "linear"),
    (linear_ops.block_linear_input_grad, "product", "linear_input_grad"),
    (linear_ops.block_linear_weight_grad, "weight_grad", "linear_weight_grad"),
    (linear_ops.block_linear_weight_and_bias_grad, "weight_grad", "linear_weight_and_bias_grad"),
    (bias_ops.bias_grad, "bias_grad", "bias_grad"),
    (linear_ops.linear_gradient_norms, "norms", "linear_gradient_norms"),
    (expert_ops.block_experts_forward, "experts", "experts"),
    (expert_ops.block_experts_input_grad, "experts", "experts_input_grad"),
    (expert_ops.block_experts_weight_grad, "experts", "experts_weight_grad"),
    (expert_ops.experts_gradient_norms, "experts", "experts_gradient_norms"),
    (mlp_ops.block_linear_activation, "mlp", "linear_activation"),
    (mlp_ops.block_linear_scaled_input_grad, "mlp", "linear_scaled_input_grad"),
    (gated_ops.block_linear_gated, "gated", "linear_gated"),
    (gated_ops.block_linear_gated_input_grad, "gated", "linear_gated_input_grad"),
    (gated_ops.block_linear_pair_input_grad, "gated", "linear_pair_input_grad"),
    (conv_ops.block_conv2d_forward, "conv", "conv2d"),
    (conv_ops.block_conv2d_input_grad, "conv", "conv2d_input_grad"),
    (conv_ops.block_conv2d_weight_grad, "conv", "conv2d_weight_grad"),
    (statistics_ops.block_conv2d_statistics, "conv_statistics", "conv2d_statistics"),
    (conv_ops.conv2d_gradient_norms, "norms", "conv2d_gradient_norms"),
    (semi_structured_ops.prune, "prune", "prune"),
)


def register() -> None:
    """Make the Triton kernels the CUDA kernels of the ops, where Triton is installed."""
    if find_spec("triton") is None:
        return
    for op, module, name in _KERNELS:
        kernel = _on_first_call(module, name)
        op.register_kernel("cuda", observed(kernel) if "weight" in name else kernel)


def _on_first_call(module: str, name: str) -> Callable[..., Any]:
    """The kernel's launcher, imported when it is first called, on the device of its first tensor.

    Triton itself launches on the current device.
    """
    loaded: list[tuple[Callable[..., Any], bool]] = []

    def launch(first: Tensor, *rest: Any) -> Any:
        if not loaded:
            check_triton_on(first.device)
            kernel = getattr(import_module(f"acf.ops.triton.{module}"), name)
            loaded.append((kernel, torch.cuda.device_count() > 1))
        kernel, several_devices = loaded[0]
        if several_devices and first.get_device() != torch.cuda.current_device():
            with torch.cuda.device(first.device):
                return kernel(first, *rest)
        return kernel(first, *rest)

    return launch
