"""The zero pattern of a tensor as packed bits."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from acf.errors import TraceError

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BitTensor:
    """Which elements of a tensor of ``shape`` are non-zero, eight to a byte in C order.

    >>> bits = BitTensor.from_array(np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> bits.nonzeros, bits.density
    (2, 0.5)
    """

    shape: tuple[int, ...]
    packed: NDArray[np.uint8]

    def __post_init__(self) -> None:
        expected = (prod(self.shape) + 7) // 8
        if min(self.shape, default=0) < 0 or self.packed.dtype != np.uint8 or self.packed.shape != (expected,):
            raise TraceError(
                f"a zero pattern of shape {list(self.shape)} needs {expected} bytes, {self.packed.size} of "
                f"{self.packed.dtype} are here; the trace is damaged, capture it again"
            )
        padding = -self.size % 8
        if padding and self.packed[-1] & ((1 << padding) - 1):
            raise TraceError(
                f"a zero pattern of shape {list(self.shape)} has bits set behind its last element; the trace is "
                "damaged, capture it again"
            )

    @classmethod
    def from_array(cls, values: Any) -> "BitTensor":
        """The pattern of a numpy array, a torch tensor or nested lists; NaN counts as non-zero."""
        nonzero = (values.detach() != 0).cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values) != 0
        return cls(tuple(int(size) for size in nonzero.shape), np.packbits(nonzero.reshape(-1)))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @cached_property
    def nonzeros(self) -> int:
        """Number of non-zero elements."""
        return int(np.bitwise_count(self.packed).sum()) if self.size else 0

    @property
    def density(self) -> float:
        """Non-zero elements over all elements; 0 for an empty tensor."""
        return self.nonzeros / self.size if self.size else 0.0

    def to_bool(self) -> BoolArray:
        """The pattern as a bool array of ``shape``."""
        flat = np.unpackbits(self.packed, count=self.size)
        return flat.view(np.bool_).reshape(self.shape)
