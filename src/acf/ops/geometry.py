"""The geometry of a 2-D convolution: kernel, stride, padding and dilation as one object."""

from collections.abc import Sequence
from dataclasses import dataclass


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
