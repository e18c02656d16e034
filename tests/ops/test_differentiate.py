"""Derivatives of the sparse products: every order, both modes, and under the transforms of `torch.func`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from acf.nn import BlockSparsity, sparsify_
from acf.ops import Conv2dGeometry, MlpLayer, block_conv2d, block_linear, block_mlp
from acf.ops.activation import ACTIVATIONS
from acf.ops.reference import unpack
from acf.sparse import BlockLayout, BlockTopology, matrix_to_conv_weight

# Torch's own forward mode loads its decompositions through torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")

LINEAR = BlockTopology.build(BlockLayout(4, 6, 2, 3), torch.tensor([1, 0]), torch.tensor([0, 0]))
SECOND = BlockTopology.build(BlockLayout(2, 4, 2, 2), torch.tensor([0]), torch.tensor([1]))
UNEVEN = Conv2dGeometry((3, 2), stride=(2, 1), padding=(1, 1), dilation=(1, 2))
CONV = BlockTopology.build(BlockLayout(4, 4 * 6, 2, 2), torch.tensor([1, 0, 1]), torch.tensor([3, 0, 7]))


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return block_linear(x, weight, LINEAR, bias)


def conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return block_conv2d(x, weight, CONV, UNEVEN, bias)


def dense_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, unpack(weight, LINEAR), bias)


def dense_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    dense = matrix_to_conv_weight(unpack(weight, CONV), UNEVEN.kernel_size)
    return torch.conv2d(x, dense, bias, UNEVEN.stride, UNEVEN.padding, UNEVEN.dilation)


def mlp(activation: str) -> Callable[..., Tensor]:
    def run(x: Tensor, first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor) -> Tensor:
        return block_mlp(x, MlpLayer(first, LINEAR, first_bias), MlpLayer(second, SECOND, second_bias), activation)

    return run


def dense_mlp(activation: str) -> Callable[..., Tensor]:
    def run(x: Tensor, first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor) -> Tensor:
        hidden = ACTIVATIONS[activation](dense_linear(x, first, first_bias))[0]
        return torch.nn.functional.linear(hidden, unpack(second, SECOND), second_bias)

    return run


LINEAR_SHAPES = ((3, 6), (2, 2, 3), (4,))
PRODUCTS = {
    "linear": (linear, dense_linear, LINEAR_SHAPES),
    "conv2d": (conv, dense_conv, ((2, 4, 5, 4), (3, 2, 2), (4,))),
    **{f"mlp {name}": (mlp(name), dense_mlp(name), (*LINEAR_SHAPES, (1, 2, 2), (2,))) for name in ACTIVATIONS},
}
products = pytest.mark.parametrize(("sparse", "dense", "shapes"), PRODUCTS.values(), ids=PRODUCTS.keys())


def doubles(shapes: tuple[tuple[int, ...], ...], requires_grad: bool = False) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(shape, dtype=torch.float64, requires_grad=requires_grad) for shape in shapes)


@products
def test_first_and_second_derivatives_are_the_numerical_ones(sparse, dense, shapes):
    operands = doubles(shapes, requires_grad=True)
    assert torch.autograd.gradcheck(sparse, operands, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(sparse, operands, check_fwd_over_rev=True, check_rev_over_rev=True)


@products
def test_the_tangent_is_that_of_the_dense_product(sparse, dense, shapes):
    operands, tangents = doubles(shapes), tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
    for ours, theirs in zip(jvp(sparse, operands, tangents), jvp(dense, operands, tangents), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("transform", [jacfwd, jacrev, hessian], ids=lambda transform: transform.__name__)
@products
def test_jacobians_and_hessians_are_those_of_the_dense_product(sparse, dense, shapes, transform):
    operands = doubles(shapes)
    for argument in range(len(shapes)):
        ours, theirs = (
            transform(lambda *args, f=f: f(*args).square().sum(), argnums=argument)(*operands) for f in (sparse, dense)
        )
        torch.testing.assert_close(ours, theirs)


@products
def test_the_gradients_of_func_are_those_of_backward(sparse, dense, shapes):
    operands, argnums = doubles(shapes), tuple(range(len(shapes)))
    ours = grad(lambda *args: sparse(*args).sin().sum(), argnums=argnums)(*operands)
    y, pull = vjp(sparse, *operands)
    leaves = [operand.clone().requires_grad_() for operand in operands]
    theirs = torch.autograd.grad(dense(*leaves).sin().sum(), leaves)
    for first, second, third in zip(ours, pull(y.cos()), theirs, strict=True):
        torch.testing.assert_close(first, third)
        torch.testing.assert_close(second, third)


@products
def test_a_mapped_weight_gives_one_product_per_weight(sparse, dense, shapes):
    x, weight, *others = doubles(shapes)
    weights = torch.stack([weight, 2 * weight, -weight])
    in_dims = (None, 0, *[None] * len(others))
    torch.testing.assert_close(vmap(sparse, in_dims)(x, weights, *others), vmap(dense, in_dims)(x, weights, *others))


@products
def test_a_hessian_vector_product_is_that_of_the_dense_product(sparse, dense, shapes):
    operands = doubles(shapes, requires_grad=True)
    vectors = tuple(torch.randn_like(operand) for operand in operands)
    ours, theirs = (
        torch.autograd.functional.hvp(lambda *args, f=f: f(*args).square().sum(), operands, vectors)[1]
        for f in (sparse, dense)
    )
    for first, second in zip(ours, theirs, strict=True):
        torch.testing.assert_close(first, second)


def test_forward_mode_without_func_gives_the_tangent_too():
    x, weight, bias = doubles(LINEAR_SHAPES)
    with forward_ad.dual_level():
        y = linear(x, forward_ad.make_dual(weight, torch.ones_like(weight)), bias)
        tangent = forward_ad.unpack_dual(y).tangent
    torch.testing.assert_close(tangent, dense_linear(x, torch.ones_like(weight), torch.zeros_like(bias)))


@pytest.mark.parametrize("density", [0.25, 0.75])
def test_the_native_kernels_have_the_second_derivatives_of_the_dense_product(density):
    layout = BlockLayout(32, 32, 8, 8)
    topology = BlockTopology.from_mask(layout, torch.rand(4, 4, generator=torch.Generator().manual_seed(1)) < density)
    x = torch.randn(5, 32, requires_grad=True)
    weight = torch.randn(topology.block_rows.numel(), 8, 8, requires_grad=True)
    results = []
    for product in (
        lambda: block_linear(x, weight, topology),
        lambda: torch.nn.functional.linear(x, unpack(weight, topology)),
    ):
        (x_grad,) = torch.autograd.grad(product().sin().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(x_grad.square().sum(), (x, weight)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_weight_in_float32_beside_a_bfloat16_input_has_second_derivatives_too():
    weight = torch.randn(2, 2, 3, requires_grad=True)
    x = torch.randn(3, 6).bfloat16().requires_grad_()
    results = []
    for product in (
        lambda: block_linear(x, weight, LINEAR),
        lambda: torch.nn.functional.linear(x, unpack(weight.bfloat16(), LINEAR)),
    ):
        (x_grad,) = torch.autograd.grad(product().float().square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(x_grad.float().square().sum(), (x, weight)))
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=1.0)


def sparse_model() -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Flatten(), torch.nn.GELU(), torch.nn.Linear(128, 8)
    )
    sparsify_(model, BlockSparsity(0.5, block=4))
    return model.double()


def test_per_sample_gradients_are_the_gradients_of_the_samples():
    model = sparse_model()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    images = torch.randn(3, 8, 4, 4, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        return functional_call(model, parameters, (image.unsqueeze(0),)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, images)
    for index, image in enumerate(images):
        model.zero_grad()
        model(image.unsqueeze(0)).square().sum().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name][index], parameter.grad)


def test_a_gradient_penalty_trains_through_a_compiled_model_or_is_refused():
    """Torch compiles no second derivatives: it must raise its own error, as for every other layer."""
    model = sparse_model()
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.randn(2, 8, 4, 4, dtype=torch.float64, requires_grad=True)
    (x_grad,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        x_grad.square().sum().backward()


@pytest.mark.parametrize("transform", [grad, jacfwd], ids=lambda transform: transform.__name__)
def test_a_compiled_transform_equals_the_eager_one(transform):
    x, weight, bias = doubles(LINEAR_SHAPES)

    def derivative(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return transform(lambda *args: linear(*args).square().sum(), argnums=1)(x, weight, bias)

    compiled = torch.compile(derivative, backend="aot_eager")
    torch.testing.assert_close(compiled(x, weight, bias), derivative(x, weight, bias))
