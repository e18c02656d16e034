"""Both layers of an MLP in one native pass: the results of separate products in float64, whatever the operands."""

from typing import Any

import pytest
import torch
from torch import Tensor

from acf.ops import LayerIdentity, MlpLayer, block_mlp, observe_weight_grad, reference, stop_observing
from acf.ops.activation import ACTIVATIONS
from acf.ops.dense import dense_products
from acf.ops.whole_mlp import backward_in_parts, block_mlp_backward, block_mlp_forward, forward_in_parts
from acf.sparse import BlockLayout, BlockTopology
from tests.ops.conftest import OpLog
from tests.ops.cpu.layers import assert_close, needs_compiler, random_topology

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]

Sample = tuple[Tensor, Tensor, list[Any]]


def tokens(shape: tuple[int, int], channels: int, turned: bool, generator: torch.Generator) -> Tensor:
    """``[batch, tokens, channels]``; turned: as the transpose of a contiguous tensor."""
    if turned:
        return torch.randn(shape[0], channels, shape[1], generator=generator).transpose(1, 2)
    return torch.randn(*shape, channels, generator=generator)


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def sample(
    block: int,
    shape: tuple[int, int],
    turned: bool = False,
    activation: str = "gelu",
    bias: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Sample:
    """``x``, an output gradient, and the ops' other operands: 3, 5 and 2 blocks wide, some rows and columns empty.

    Biases are float32, as under autocast.
    """
    generator = torch.Generator().manual_seed(block + shape[1])
    first = random_topology(BlockLayout(5 * block, 3 * block, block, block), 0.3, generator)
    second = random_topology(BlockLayout(2 * block, 5 * block, block, block), 0.3, generator)
    weights = [torch.randn(each.block_rows.numel(), block, block, generator=generator) for each in (first, second)]
    biases = [torch.randn(size * block, generator=generator) if bias else None for size in (5, 2)]
    x, grad = tokens(shape, 3 * block, turned, generator), tokens(shape, 2 * block, turned, generator)
    weights = [each.to(dtype) for each in weights]
    layers = [weights[0], biases[0], weights[1], biases[1], activation, list(first), list(second)]
    return x.to(dtype), grad.to(dtype), layers


def expected(x: Tensor, output_grad: Tensor, layers: list[Any]) -> list[Tensor]:
    """Output and gradients of input, weights and biases, by the reference in float64."""
    first_weight, first_bias, second_weight, second_bias = (
        None if each is None else each.double() for each in layers[:4]
    )
    first, second = (BlockTopology(*each) for each in layers[5:])
    flat, flat_grad = (each.double().reshape(-1, each.shape[-1]) for each in (x, output_grad))
    values, slopes = ACTIVATIONS[layers[4]](reference.linear(flat, first_weight, first, first_bias))
    hidden_grad = reference.linear_input_grad(flat_grad, second_weight, second) * slopes
    return [
        reference.linear(values, second_weight, second, second_bias).view(output_grad.shape),
        reference.linear_input_grad(hidden_grad, first_weight, first).view(x.shape),
        reference.linear_weight_grad(hidden_grad, flat, first),
        hidden_grad.sum(0),
        reference.linear_weight_grad(flat_grad, values, second),
        flat_grad.sum(0),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("block", [8, 16, 32, 64])
def test_output_and_gradients_are_those_of_separate_products(
    instruction_set: str, block: int, turned: bool, dtype: str
) -> None:
    for shape in ((1, 1), (1, 0), (3, 37), (2, 300)):
        x, output_grad, layers = sample(block, shape, turned, dtype=DTYPES[dtype])
        y, hidden = block_mlp_forward(x, *layers)
        grads = block_mlp_backward(output_grad, x, hidden, *layers)
        for result, wanted in zip((y, *grads), expected(x, output_grad, layers), strict=True):
            assert_close(result, wanted, DTYPES[dtype])
        assert shape[1] < 2 or (y.stride(1) == 1) == turned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_every_activation_is_differentiated(instruction_set: str, activation: str, bias: bool, dtype: str) -> None:
    x, output_grad, layers = sample(32, (1, 150), activation=activation, bias=bias, dtype=DTYPES[dtype])
    y, hidden = block_mlp_forward(x, *layers)
    grads = block_mlp_backward(output_grad, x, hidden, *layers)
    for result, wanted in zip((y, *grads), expected(x, output_grad, layers), strict=True):
        assert_close(result, wanted, DTYPES[dtype])


def test_bfloat16_tokens_of_odd_strides_and_offsets_are_read_as_they_lie(instruction_set: str) -> None:
    generator = torch.Generator().manual_seed(3)
    _, _, layers = sample(16, (2, 37), dtype=torch.bfloat16)
    shared = torch.randn(2, 37, 5 * 16 + 1, generator=generator).bfloat16()
    x, output_grad = shared[..., 1:49], shared[..., 49:]
    y, hidden = block_mlp_forward(x, *layers)
    grads = block_mlp_backward(output_grad, x, hidden, *layers)
    for result, wanted in zip((y, *grads), expected(x, output_grad, layers), strict=True):
        assert_close(result, wanted, torch.bfloat16)


def test_gradients_of_float32_parameters_are_not_rounded_to_bfloat16() -> None:
    x, output_grad, layers = sample(32, (2, 100), dtype=torch.bfloat16)
    _, hidden = block_mlp_forward(x, *layers)
    native = block_mlp_backward(output_grad, x, hidden, *layers, None, None, torch.float32)
    in_parts = backward_in_parts(output_grad, x, hidden, *layers, None, None, torch.float32)
    for grads in (native, in_parts):
        assert [each.dtype for each in grads] == [torch.bfloat16, *(torch.float32,) * 4]
    assert not torch.equal(native[1], native[1].bfloat16().float())


def test_relu_is_differentiated_where_its_slope_is_known() -> None:
    x, output_grad, layers = sample(16, (1, 64), activation="relu")
    y, hidden = block_mlp_forward(x, *layers)
    by_parts = backward_in_parts(output_grad, x, hidden, *layers)
    assert_close(y, expected(x, output_grad, layers)[0], torch.float32)
    for result, wanted in zip(block_mlp_backward(output_grad, x, hidden, *layers), by_parts, strict=True):
        assert_close(result, wanted.double(), torch.float32)


@pytest.mark.parametrize("turned", [False, True])
def test_either_pass_may_run_in_parts_beside_the_native_other(turned: bool) -> None:
    x, output_grad, layers = sample(16, (3, 300), turned)
    y, hidden = block_mlp_forward(x, *layers)
    other_y, other_hidden = forward_in_parts(x, *layers)
    assert y.stride() == other_y.stride()
    grads = block_mlp_backward(output_grad, x, other_hidden, *layers)
    by_parts = backward_in_parts(output_grad, x, hidden, *layers)
    for result, other, wanted in zip((y, *grads), (other_y, *by_parts), expected(x, output_grad, layers), strict=True):
        assert result.stride() == other.stride()
        assert_close(result, wanted, torch.float32)
        assert_close(other, wanted, torch.float32)


def test_dense_products_may_begin_between_the_passes() -> None:
    x, output_grad, layers = sample(16, (1, 50))
    _, hidden = block_mlp_forward(x, *layers)
    with dense_products():
        grads = block_mlp_backward(output_grad, x, hidden, *layers)
    for result, wanted in zip(grads, expected(x, output_grad, layers)[1:], strict=True):
        assert_close(result, wanted, torch.float32)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_thread_count_is_right_and_gives_the_same_bits_twice(threads: int) -> None:
    x, output_grad, layers = sample(32, (2, 333))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y, hidden = block_mlp_forward(x, *layers)
        runs = [block_mlp_backward(output_grad, x, hidden, *layers) for _ in range(2)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))
    for result, wanted in zip((y, *runs[0]), expected(x, output_grad, layers), strict=True):
        assert_close(result, wanted, torch.float32)


def test_sums_too_large_for_the_caches_are_kept_alike() -> None:
    x, output_grad, layers = sample(64, (1, 7000))  # 9 MB of hidden channels
    y, hidden = block_mlp_forward(x, *layers)
    grads = block_mlp_backward(output_grad, x, hidden, *layers)
    for result, wanted in zip((y, *grads), expected(x, output_grad, layers), strict=True):
        assert_close(result, wanted, torch.float32)


def test_a_training_step_under_autocast_takes_both_layers_at_once(bfloat16_pairs: None) -> None:
    operand, output_grad, layers = sample(32, (2, 96))
    x, first, second, leaves = leaves_of(operand.bfloat16(), layers)
    with OpLog() as log:
        y = block_mlp(x, first, second)
        grads = torch.autograd.grad(y, leaves, output_grad.bfloat16())
    assert {"acf::block_mlp_forward", "acf::block_mlp_backward"} <= log.names
    assert "acf::block_linear_forward" not in log.names
    assert [each.dtype for each in grads] == [torch.bfloat16, *(torch.float32,) * 4]
    rounded = [layers[0].bfloat16(), layers[1], layers[2].bfloat16(), *layers[3:]]
    for result, wanted in zip((y, *grads), expected(x.detach(), output_grad.bfloat16(), rounded), strict=True):
        assert_close(result, wanted, torch.bfloat16)


def test_a_second_derivative_under_autocast_is_that_of_separate_layers() -> None:
    operand, output_grad, layers = sample(8, (1, 12), dtype=torch.bfloat16)
    parameters = [each.float() for each in layers[:4]]
    x, first, second, leaves = leaves_of(operand, parameters + layers[4:])
    (grad,) = torch.autograd.grad(block_mlp(x, first, second), x, output_grad, create_graph=True)
    result = torch.autograd.grad(grad.float().square().sum(), leaves[:4])
    doubles = leaves_of(operand.double(), [each.double() for each in parameters] + layers[4:])
    (grad,) = torch.autograd.grad(block_mlp(*doubles[:3]), doubles[0], output_grad.double(), create_graph=True)
    assert [each.dtype for each in result] == [torch.bfloat16, *(torch.float32,) * 3]
    for each, wanted in zip(result, torch.autograd.grad(grad.square().sum(), doubles[3][:4]), strict=True):
        assert_close(each, wanted, torch.bfloat16)


def leaves_of(x: Tensor, layers: list[Any]) -> tuple[Tensor, MlpLayer, MlpLayer, list[Tensor]]:
    """Trained copies of the operands, as `block_mlp` takes them, and all of them in a list."""
    x, *parameters = (each.detach().clone().requires_grad_() for each in (x, *layers[:4]))
    first, second = (BlockTopology(*each) for each in layers[5:])
    first_layer = MlpLayer(parameters[0], first, parameters[1], LayerIdentity().token)
    second_layer = MlpLayer(parameters[2], second, parameters[3], LayerIdentity().token)
    return x, first_layer, second_layer, [x, *parameters]


@pytest.mark.parametrize("turned", [False, True])
def test_a_training_step_takes_both_layers_at_once(turned: bool) -> None:
    operand, output_grad, layers = sample(32, (2, 96), turned)
    x, first, second, leaves = leaves_of(operand, layers)
    with OpLog() as log:
        y = block_mlp(x, first, second)
        grads = torch.autograd.grad(y, leaves, output_grad)
    assert log.names == {"acf::block_mlp_forward", "acf::block_mlp_backward"}
    for result, wanted in zip((y, *grads), expected(operand, output_grad, layers), strict=True):
        assert_close(result, wanted, torch.float32)


def test_a_second_derivative_is_that_of_separate_layers() -> None:
    operand, output_grad, layers = sample(8, (1, 12))
    x, first, second, leaves = leaves_of(operand, layers)
    (grad,) = torch.autograd.grad(block_mlp(x, first, second), x, output_grad, create_graph=True)
    result = torch.autograd.grad(grad.square().sum(), leaves[:4])
    doubles = leaves_of(operand.double(), [None if each is None else each.double() for each in layers[:4]] + layers[4:])
    (grad,) = torch.autograd.grad(block_mlp(*doubles[:3]), doubles[0], output_grad.double(), create_graph=True)
    for each, wanted in zip(result, torch.autograd.grad(grad.square().sum(), doubles[3][:4]), strict=True):
        assert_close(each, wanted, torch.float32)


def test_frozen_parameters_get_no_gradient() -> None:
    operand, output_grad, layers = sample(8, (1, 12))
    x, first, second, _ = leaves_of(operand, layers)
    frozen = first._replace(weight=first.weight.detach())
    with OpLog() as log:
        block_mlp(x, frozen, second).backward(output_grad)
    assert "acf::block_mlp_backward" not in log.names
    assert_close(x.grad, expected(operand, output_grad, layers)[1], torch.float32)


class Operands:
    """Keeps what a weight gradient is computed from."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor]] = []

    def add(self, output_grad: Tensor, x: Tensor, *offsets: Tensor) -> None:
        self.seen.append((output_grad, x))


def test_an_observer_receives_the_operands_of_its_layer() -> None:
    operand, output_grad, layers = sample(16, (2, 40), turned=True)
    identity, observer = LayerIdentity(), Operands()
    x, first, second, _ = leaves_of(operand, layers)
    observe_weight_grad(identity, observer)
    try:
        block_mlp(x, first._replace(token=identity.token), second).backward(output_grad)
    finally:
        stop_observing(identity)
    ((hidden_grad, flat_x),) = observer.seen
    assert torch.equal(flat_x, operand.reshape(80, -1))
    topology = BlockTopology(*layers[5])
    wanted = reference.linear_weight_grad(hidden_grad.double(), flat_x.double(), topology)
    assert_close(first.weight.grad, wanted, torch.float32)
    assert_close(first.weight.grad, expected(operand, output_grad, layers)[2], torch.float32)


def test_hidden_blocks_that_nobody_reads_spread_no_nan() -> None:
    block = 8
    first = BlockTopology.build(BlockLayout(16, 8, block, block), torch.tensor([0, 1]), torch.tensor([0, 0]))
    second = BlockTopology.build(BlockLayout(8, 16, block, block), torch.tensor([0]), torch.tensor([0]))
    weight = torch.randn(2, block, block)
    weight[1] = torch.nan
    layers = [weight, None, torch.randn(1, block, block), None, "gelu", list(first), list(second)]
    x = torch.randn(1, 4, 8)
    y, hidden = block_mlp_forward(x, *layers)
    grads = block_mlp_backward(torch.randn(1, 4, 8), x, hidden, *layers)
    assert all(each.isfinite().all() for each in (y, *grads))


def test_a_compiled_step_gives_the_same() -> None:
    operand, output_grad, layers = sample(32, (2, 64), turned=True)
    x, first, second, leaves = leaves_of(operand, layers)
    y = torch.compile(block_mlp, fullgraph=True, backend="aot_eager")(x, first, second)
    grads = torch.autograd.grad(y, leaves, output_grad)
    for result, wanted in zip((y, *grads), expected(operand, output_grad, layers), strict=True):
        assert_close(result, wanted, torch.float32)
