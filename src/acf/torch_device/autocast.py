"""Automatic mixed precision under ``torch.autocast("acf")``: products take bf16, losses and norms float32."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from acf.torch_device.memory import NAME

PRODUCTS = (
    "linear",
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "matmul",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "scaled_dot_product_attention",
)
"""Ops whose floating-point operands are cast to the autocast dtype."""

FLOAT32 = (
    "softmax.int",
    "log_softmax.int",
    "layer_norm",
    "group_norm",
    "nll_loss",
    "cross_entropy_loss",
    "mse_loss",
    "binary_cross_entropy_with_logits",
    "exp",
    "log",
    "pow.Tensor_Scalar",
    "sum",
    "prod",
)
"""Ops whose floating-point operands are cast to float32."""

AUTOCAST_KEY = "AutocastPrivateUse1"
_BELOW = torch._C.DispatchKeySet(torch._C._dispatch_key_parse(AUTOCAST_KEY))


def register_autocast_kernels(library: Any, overload: Callable[[str], Any]) -> None:
    """Register the casts in ``library``, which implements aten; every other op runs in the dtype of its operands."""
    for name in PRODUCTS:
        library.impl(name, _casting(overload(name), lambda: torch.get_autocast_dtype(NAME)), AUTOCAST_KEY)
    for name in FLOAT32:
        library.impl(name, _casting(overload(name), lambda: torch.float32), AUTOCAST_KEY)


def _casting(op: Any, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        target = dtype()
        with torch._C._ExcludeDispatchKeyGuard(_BELOW):
            cast_args = [_cast(value, target) for value in args]
            return op(*cast_args, **{name: _cast(value, target) for name, value in kwargs.items()})

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """A tensor in the dtype, if it is one of floating-point numbers on the device; float64 stays as it is."""
    is_cast = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64
    return value.to(dtype) if is_cast and value.device.type == NAME else value
