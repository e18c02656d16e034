"""CUDA implementations of the block-sparse ops, written in Triton.

`register` gives the ops of `acf.ops` their CUDA kernels; Triton is imported when the first of them is called. Problems
the kernels do not take (other block sizes, rectangular blocks, float64) run the reference, and so does everything
where Triton is not installed.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torch import Tensor
from torch._library.custom_ops import CustomOpDef

from acf.ops import conv as conv_ops
from acf.ops import linear as linear_ops
from acf.ops.observe import observed

__all__ = ["register"]

# For each op the module of this package and the function in it.
_KERNELS: tuple[tuple[CustomOpDef, str, str], ...] = (
    (linear_ops._block_linear, "product", "linear"),
    (linear_ops._block_linear_input_grad, "product", "linear_input_grad"),
    (linear_ops._block_linear_weight_grad, "weight_grad", "linear_weight_grad"),
    (linear_ops._block_gradient_norms, "norms", "linear_gradient_norms"),
    (conv_ops._block_conv2d, "conv", "conv2d"),
    (conv_ops._block_conv2d_input_grad, "conv", "conv2d_input_grad"),
    (conv_ops._block_conv2d_weight_grad, "conv", "conv2d_weight_grad"),
    (conv_ops._block_conv2d_gradient_norms, "norms", "conv2d_gradient_norms"),
)


def register() -> None:
    """Make the Triton kernels the CUDA kernels of the custom ops, where Triton is installed."""
    if find_spec("triton") is None:
        return
    for op, module, name in _KERNELS:
        kernel = _on_first_call(module, name)
        op.register_kernel("cuda", observed(kernel) if name.endswith("weight_grad") else kernel)


def _on_first_call(module: str, name: str) -> Callable[..., Tensor]:
    """The kernel's launcher, imported when it is first called."""

    @cache
    def load() -> Callable[..., Tensor]:
        from acf.ops.triton.support import on_its_device

        return on_its_device(getattr(import_module(f"acf.ops.triton.{module}"), name))

    def launch(*args: Any) -> Tensor:
        return load()(*args)

    return launch
