"""Which problems the Triton kernels take, and in which arithmetic."""

import torch
from torch import Tensor

from acf.ops.dense import dense_chosen

BLOCK_SIZES = (16, 32, 64, 128)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def supports(block_shape: tuple[int, int], *tensors: Tensor) -> bool:
    """Whether square blocks of a known size, one known dtype and at least one element in every tensor are given.

    Nothing is taken within `acf.ops.dense_products`.
    """
    height, width = block_shape
    return (
        not dense_chosen()
        and height == width
        and height in BLOCK_SIZES
        and all(tensor.dtype == tensors[0].dtype and tensor.numel() > 0 for tensor in tensors)
        and tensors[0].dtype in DTYPES
    )


def readable(tensor: Tensor) -> Tensor:
    """``tensor`` contiguous and on a 16-byte boundary, as descriptors need it; a copy only where it is not."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def dot_precision(dtype: torch.dtype) -> str:
    """Triton's ``input_precision``: tf32 for float32 only where torch's own products may use it."""
    if dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32:
        return "ieee"
    return "tf32"


def next_power_of_two(number: int) -> int:
    """The least power of two not below ``number``.

    >>> next_power_of_two(5)
    8
    """
    return 1 << (number - 1).bit_length()


def ceil_div(numerator: int, denominator: int) -> int:
    """Quotient rounded up."""
    return -(-numerator // denominator)
