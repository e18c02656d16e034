"""Counting matrix products that the host computes because they belong to no offloaded layer."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NAMES: dict[Any, str] = {
    F.linear: "linear",
    torch.conv1d: "conv1d",
    torch.conv2d: "conv2d",
    torch.conv3d: "conv3d",
    torch.conv_transpose2d: "conv_transpose2d",
    F.scaled_dot_product_attention: "scaled_dot_product_attention",
    torch.matmul: "matmul",
    Tensor.matmul: "matmul",
    Tensor.__matmul__: "matmul",
    torch.bmm: "bmm",
    Tensor.bmm: "bmm",
    torch.einsum: "einsum",
}
"""Functions of torch that multiply matrices, and the name each is counted under."""


class HostProducts(TorchFunctionMode):
    """Counts calls of torch's product functions in ``calls`` while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called for every function of torch."""
        name = _NAMES.get(func)
        if name is not None:
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))
