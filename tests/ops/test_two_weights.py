"""Products with one weight forward and another backward, against autograd on plain torch ones."""

import pytest
import torch
from torch.nn import functional as F

from acf.ops import Conv2dGeometry, conv2d_with_two_weights, linear_with_two_weights, mask_straight_through


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


GEOMETRY = Conv2dGeometry((3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2))

PRODUCTS = {
    "linear": (linear_with_two_weights, F.linear, (5, 3, 6), (4, 6)),
    "convolution": (
        lambda x, w, b: conv2d_with_two_weights(x, w, b, GEOMETRY),
        lambda x, w: torch.conv2d(x, w, None, GEOMETRY.stride, GEOMETRY.padding, GEOMETRY.dilation),
        (2, 4, 7, 6),
        (6, 4, 3, 2),
    ),
}


@pytest.mark.parametrize(("product", "plain", "x_shape", "weight_shape"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_each_pass_uses_its_own_weight(product, plain, x_shape, weight_shape):
    x, weight, backward_weight = doubles(*x_shape), doubles(*weight_shape), doubles(*weight_shape)
    y = product(x, weight, backward_weight)
    torch.testing.assert_close(y, plain(x, weight))
    output_grad = torch.randn_like(y)
    input_grad, weight_grad = torch.autograd.grad(y, (x, weight), output_grad)
    (expected_input_grad,) = torch.autograd.grad(plain(x, backward_weight), x, output_grad)
    (expected_weight_grad,) = torch.autograd.grad(plain(x, weight), weight, output_grad)
    torch.testing.assert_close(input_grad, expected_input_grad)
    torch.testing.assert_close(weight_grad, expected_weight_grad)


@pytest.mark.parametrize(("product", "plain", "x_shape", "weight_shape"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_with_one_weight_in_both_passes_the_gradient_is_the_numerical_one(product, plain, x_shape, weight_shape):
    def with_one_weight(x, weight):
        return product(x, weight, weight.detach())

    assert torch.autograd.gradcheck(with_one_weight, (doubles(*x_shape), doubles(*weight_shape)))


def test_masking_straight_through_passes_the_whole_gradient_and_decays_what_is_masked():
    weight = torch.tensor([1.0, -2.0, 3.0, -4.0], requires_grad=True)
    mask = torch.tensor([True, False, True, False])
    masked = mask_straight_through(weight, mask, decay=0.5)
    assert masked.tolist() == [1.0, 0.0, 3.0, 0.0]
    masked.backward(torch.tensor([10.0, 20.0, 30.0, 40.0]))
    assert weight.grad.tolist() == [10.0, 20.0 - 1.0, 30.0, 40.0 - 2.0]


def test_masking_a_weight_that_overflowed_gives_zero_and_not_nan():
    masked = mask_straight_through(torch.tensor([float("inf"), 1.0]), torch.tensor([False, True]))
    assert masked.tolist() == [0.0, 1.0]
