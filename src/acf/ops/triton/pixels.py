"""A convolution as implicit GEMM over pixels: sizes, kernel constants and the pixel-major view of tensors."""

from dataclasses import dataclass
from functools import cache

from torch import Tensor

from acf.ops.geometry import Conv2dGeometry
from acf.ops.triton.support import readable


@dataclass(frozen=True)
class ConvProblem:
    """Shapes of one convolution: x ``[batch, in, h, w]``, output ``[batch, out, oh, ow]``."""

    batch: int
    in_channels: int
    out_channels: int
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    geometry: Conv2dGeometry

    @classmethod
    def build(cls, x_shape: list[int], output_shape: list[int], geometry: Conv2dGeometry) -> "ConvProblem":
        """The problem of an input and an output shape, both ``[batch, channels, height, width]``."""
        return cls(
            x_shape[0],
            x_shape[1],
            output_shape[1],
            (x_shape[2], x_shape[3]),
            (output_shape[2], output_shape[3]),
            geometry,
        )

    @property
    def taps(self) -> int:
        """Number of kernel taps."""
        return self.geometry.taps

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Input height and width, output height and width."""
        return (*self.in_size, *self.out_size)

    @property
    def constants(self) -> tuple[int, ...]:
        """The geometry as the kernels' compile-time constant, in the order of `geometry_kernels`."""
        geometry = self.geometry
        return (geometry.kernel_size[1], *geometry.stride, *geometry.padding, *geometry.dilation)

    @property
    def boxed(self) -> bool:
        """Whether a tap moves boxes of pixels as a whole: each phase of the stride has equally many input pixels."""
        return all(size % stride == 0 for size, stride in zip(self.in_size, self.geometry.stride, strict=True))

    @property
    def phases(self) -> int:
        """Classes of input pixels alike in row and column modulo the stride."""
        return self.geometry.stride[0] * self.geometry.stride[1]

    @property
    def phase_size(self) -> tuple[int, int]:
        """Rows and columns of input pixels in each phase, of a `boxed` problem."""
        return self.in_size[0] // self.geometry.stride[0], self.in_size[1] // self.geometry.stride[1]

    @property
    def text(self) -> str:
        """The geometry in a few characters, for a tuning key."""
        geometry = self.geometry
        pairs = f"{self.in_size}{geometry.kernel_size}{geometry.stride}{geometry.padding}{geometry.dilation}"
        return pairs.replace(" ", "") + (" by phase" if self.boxed and self.phases > 1 else "")

    @staticmethod
    def pixels_of(tensor: Tensor) -> Tensor:
        """``[batch, channels, height, width]`` as ``[pixels, channels]``; a view where channels are innermost."""
        return readable(tensor.permute(0, 2, 3, 1)).view(-1, tensor.shape[1])


@cache
def pixel_box(pixels: int, batch: int, size: tuple[int, int]) -> tuple[int, int, int]:
    """Images, rows and columns, powers of two, of the box of ``pixels`` pixels that covers a batch with least waste.

    >>> pixel_box(128, 256, (14, 14))
    (32, 2, 2)
    """
    powers = [1 << exponent for exponent in range(pixels.bit_length()) if (1 << exponent) <= 256]
    boxes = [
        (pixels // (rows * cols), rows, cols)
        for rows in powers
        for cols in powers
        if rows * cols <= pixels and pixels // (rows * cols) <= 256
    ]

    def covered(box: tuple[int, int, int]) -> int:
        padded = [-(-extent // part) * part for extent, part in zip((batch, *size), box, strict=True)]
        return padded[0] * padded[1] * padded[2]

    # Of equal ones the box with few images and long rows: neighbouring pixels are read together.
    return min(boxes, key=lambda box: (covered(box), box[0], -box[2]))
