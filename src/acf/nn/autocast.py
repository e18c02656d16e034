"""Autocast for operations that torch does not know."""

import torch
from torch import Tensor

from acf.errors import require_kind


def cast_for_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast to the autocast dtype where one is active, float64 excepted, as torch does for its own layers."""
    require_kind(tensors[0], Tensor, "the input", "pass a torch.Tensor")
    device_type = tensors[0].device.type
    if device_type == "meta" or not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(tensor if tensor.dtype is torch.float64 else tensor.to(dtype) for tensor in tensors)
