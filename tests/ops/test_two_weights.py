"""Products with one weight forward and another backward, against autograd on plain torch ones."""

import pytest
import torch
from torch.nn import functional as F

from acf.errors import AcfError
from acf.ops import Conv2dGeometry, conv2d_with_two_weights, linear_with_two_weights, mask_straight_through

# Torch's own forward mode loads its decompositions through torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")


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


@pytest.mark.parametrize(("product", "plain", "x_shape", "weight_shape"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_with_one_weight_in_both_passes_every_derivative_is_the_numerical_one(product, plain, x_shape, weight_shape):
    def with_one_weight(x, weight):
        return product(x, weight, weight)

    operands = (doubles(*x_shape), doubles(*weight_shape))
    assert torch.autograd.gradgradcheck(with_one_weight, operands)
    tangents = tuple(torch.randn_like(operand) for operand in operands)
    ours = torch.func.jvp(with_one_weight, operands, tangents)[1]
    torch.testing.assert_close(ours, torch.func.jvp(plain, operands, tangents)[1])


@pytest.mark.parametrize(("product", "plain", "x_shape", "weight_shape"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_the_tangent_is_the_transpose_of_the_gradient(product, plain, x_shape, weight_shape):
    x, weight, backward_weight = doubles(*x_shape), doubles(*weight_shape), doubles(*weight_shape).detach()
    tangents = (torch.randn_like(x), torch.randn_like(weight))
    y, tangent = torch.func.jvp(lambda x, weight: product(x, weight, backward_weight), (x, weight), tangents)
    cotangent = torch.randn_like(y)
    gradients = torch.autograd.grad(product(x, weight, backward_weight), (x, weight), cotangent)
    pulled = sum((gradient * each).sum() for gradient, each in zip(gradients, tangents, strict=True))
    torch.testing.assert_close((cotangent * tangent).sum(), pulled)


@pytest.mark.parametrize(("product", "plain", "x_shape", "weight_shape"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_per_sample_gradients_are_the_gradients_of_the_samples(product, plain, x_shape, weight_shape):
    x, weight, backward_weight = doubles(*x_shape), doubles(*weight_shape), doubles(*weight_shape).detach()

    def loss(weight, sample):
        return product(sample.unsqueeze(0), weight, backward_weight).square().sum()

    found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, x)
    for gradient, sample in zip(found, x, strict=True):
        torch.testing.assert_close(gradient, torch.autograd.grad(loss(weight, sample), weight)[0])


def test_a_mask_passes_tangents_straight_through_and_refuses_those_of_a_decay():
    weight, mask = torch.tensor([1.0, -2.0]), torch.tensor([True, False])
    tangent = torch.tensor([3.0, 4.0])
    assert torch.func.jvp(lambda w: mask_straight_through(w, mask), (weight,), (tangent,))[1].tolist() == [3.0, 4.0]
    with pytest.raises(AcfError, match=r"the decay 0\.5 of masked weights"):
        torch.func.jvp(lambda w: mask_straight_through(w, mask, decay=0.5), (weight,), (tangent,))
