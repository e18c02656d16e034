"""The geometry of a 2-D convolution: kernel, stride, padding and dilation as one object."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import SymInt

from acf.errors import ArgumentError, require_kind

LEAST = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
"""The least value of either number of a pair."""


@dataclass(frozen=True)
class Conv2dGeometry:
    """Kernel, stride, zero padding and dilation of a 2-D convolution, each ``(vertical, horizontal)``."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @classmethod
    def from_lists(cls, *pairs: Sequence[int]) -> "Conv2dGeometry":
        """The inverse of `as_lists`: what an op gets of its schema."""
        return cls(*((pair[0], pair[1]) for pair in pairs))

    @property
    def taps(self) -> int:
        """Number of kernel taps."""
        return self.kernel_size[0] * self.kernel_size[1]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the output for an input of ``height`` x ``width``."""
        out_height, out_width = (
            (size + 2 * self.padding[axis] - self.dilation[axis] * (self.kernel_size[axis] - 1) - 1)
            // self.stride[axis]
            + 1
            for axis, size in enumerate((height, width))
        )
        return out_height, out_width

    def as_lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """The four pairs as lists, the form op schemas take."""
        return list(self.kernel_size), list(self.stride), list(self.padding), list(self.dilation)


def check_geometry(geometry: Conv2dGeometry) -> None:
    """Refuse what is no geometry, and pairs of it that no convolution can have."""
    require_kind(geometry, Conv2dGeometry, "geometry", "pass a Conv2dGeometry")
    for name, least in LEAST.items():
        check_pair(name, getattr(geometry, name), least)


def check_pair(name: str, pair: Sequence[int], least: int) -> None:
    """Refuse what are not two integers from ``least`` on."""
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2
    if not (is_pair and all(isinstance(each, int | SymInt) and each >= least for each in pair)):
        raise ArgumentError(f"{name} is {pair!r:.60}; pass two integers, each at least {least}")
