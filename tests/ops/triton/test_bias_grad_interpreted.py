"""Bias gradients of tokens and of images."""

import pytest
import torch

from acf.ops.triton import bias_grad
from tests.ops.triton.interpreted import assert_close


@pytest.mark.parametrize("shape", [(1, 16), (37, 200), (1000, 48)], ids=str)
def test_a_bias_gradient_is_the_sum_over_tokens(shape: tuple[int, int]) -> None:
    output_grad = torch.randn(shape).bfloat16()
    for dtype in (torch.float32, torch.bfloat16):
        result = bias_grad.bias_grad(output_grad, dtype)
        assert result.dtype == dtype
        assert_close(result, output_grad.double().sum(0), dtype)


def test_a_bias_gradient_of_images_is_the_sum_over_pixels_in_either_memory_format() -> None:
    images = torch.randn(3, 24, 5, 4)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        result = bias_grad.bias_grad(images.contiguous(memory_format=memory_format), torch.float32)
        assert_close(result, images.double().sum((0, 2, 3)), torch.float32)
