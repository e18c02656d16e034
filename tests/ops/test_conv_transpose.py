"""The block-sparse transposed convolution against the dense one, through the native kernels where they apply."""

import pytest
import torch

from acf.ops import Conv2dGeometry, block_conv_transpose2d, transposed_output_size
from acf.sparse import BlockLayout, BlockTopology, matrix_to_conv_weight

GEOMETRY = Conv2dGeometry((3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_product_is_that_of_the_dense_transposed_convolution(dtype, memory_format):
    layout = BlockLayout(rows=32, cols=6 * 16, block_height=16, block_width=16)
    topology = BlockTopology.from_mask(layout, torch.rand(2, 6) < 0.5)
    weight = torch.randn(topology.block_rows.numel(), 16, 16, dtype=dtype)
    x = torch.randn(2, 32, 4, 5, dtype=dtype).to(memory_format=memory_format)
    dense = matrix_to_conv_weight(layout.unpack(weight, topology.block_rows, topology.block_cols), (3, 2))
    bias = torch.randn(16)
    y = block_conv_transpose2d(x, weight, topology, GEOMETRY, (1, 2), bias)
    expected = torch.nn.functional.conv_transpose2d(x, dense, bias.to(dtype), (2, 3), (1, 0), (1, 2), 1, (1, 2))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    assert tuple(y.shape[2:]) == transposed_output_size((4, 5), GEOMETRY, (1, 2))


def test_gradients_of_every_order_agree_with_finite_differences():
    layout = BlockLayout(rows=4, cols=6 * 4, block_height=4, block_width=2)
    topology = BlockTopology.from_mask(layout, torch.arange(12).reshape(1, 12) % 3 == 0)
    operands = [torch.randn(shape, dtype=torch.float64) for shape in ((1, 4, 2, 2), (4, 4, 2), (4,))]

    def product(x, weight, bias):
        return block_conv_transpose2d(x, weight, topology, GEOMETRY, (1, 0), bias)

    operands = [operand.requires_grad_() for operand in operands]
    assert torch.autograd.gradcheck(product, operands)
    assert torch.autograd.gradgradcheck(product, operands)


def test_per_sample_gradients_are_those_of_a_loop():
    layout = BlockLayout(rows=4, cols=6 * 4, block_height=4, block_width=2)
    topology = BlockTopology.from_mask(layout, torch.arange(12).reshape(1, 12) % 2 == 0)
    weight, x = torch.randn(6, 4, 2), torch.randn(3, 4, 3, 2)

    def loss(weight, image):
        return block_conv_transpose2d(image[None], weight, topology, GEOMETRY).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0))(weight, x)
    torch.testing.assert_close(gradients, torch.stack([torch.func.grad(loss)(weight, image) for image in x]))
