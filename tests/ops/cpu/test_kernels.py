"""The native CPU kernels against the float64 reference."""

import os
import shutil
import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acf.errors import TopologyError
from acf.ops import Conv2dGeometry, block_conv2d, block_linear, reference
from acf.ops.activation import ACTIVATIONS
from acf.ops.conv import block_conv2d_forward, block_conv2d_input_grad, block_conv2d_weight_grad
from acf.ops.cpu import call, kernels
from acf.ops.cpu.call import INSTRUCTION_SETS
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from acf.ops.reference import memory_format_of
from acf.sparse import BlockLayout, BlockTopology

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++", "clang++")),
    reason="no C++ compiler",
)
pytestmark = needs_compiler

DENSITIES = (0.0, 0.2, 0.6, 1.0)
RELATIVE_ERROR = {torch.float32: 3e-6, torch.bfloat16: 8e-3}
few_examples = settings(max_examples=60, deadline=None, derandomize=True)
dtypes = st.sampled_from(sorted(RELATIVE_ERROR, key=str))
blocks = st.sampled_from(kernels.NATIVE_BLOCKS)


@pytest.fixture(autouse=True)
def native_at_any_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing to the dense product, however dense the layer."""
    monkeypatch.setattr(kernels, "_pays", lambda *arguments: True)


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set in turn, as far as this processor and compiler have it."""
    name = str(request.param)
    if INSTRUCTION_SETS.index(name) > INSTRUCTION_SETS.index(call.instruction_set() or "portable"):
        pytest.skip(f"{name} is missing: the best here is {call.instruction_set()}")
    with call.with_instruction_set(name):
        yield name


@pytest.fixture
def bfloat16_pairs() -> Iterator[None]:
    """Only where pairs of bfloat16 are multiplied."""
    if call.instruction_set() != "avx512bf16":
        pytest.skip(f"avx512bf16 is missing: the best here is {call.instruction_set()}")
    with call.with_instruction_set("avx512bf16"):
        yield


def random_topology(layout: BlockLayout, density: float, generator: torch.Generator) -> BlockTopology:
    """About ``density`` of the blocks, slots in random order."""
    mask = torch.rand(layout.grid_rows, layout.grid_cols, generator=generator) < density
    rows, cols = torch.nonzero(mask, as_tuple=True)
    order = torch.randperm(rows.numel(), generator=generator)
    return BlockTopology.build(layout, rows[order], cols[order])


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert actual.shape == expected.shape
    error = torch.linalg.vector_norm(actual.double() - expected)
    assert error <= RELATIVE_ERROR[dtype] * torch.linalg.vector_norm(expected) + 1e-30


@given(
    seed=st.integers(0, 2**31),
    block=blocks,
    dtype=dtypes,
    tokens=st.sampled_from((0, 1, 2, 7, 63, 64, 65, 200)),
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    density=st.sampled_from(DENSITIES),
    transposed=st.booleans(),
)
@few_examples
def check_linear(
    seed: int,
    block: int,
    dtype: torch.dtype,
    tokens: int,
    grid: tuple[int, int],
    density: float,
    transposed: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layout = BlockLayout(grid[0] * block, grid[1] * block, block, block)
    topology = random_topology(layout, density, generator)
    x = torch.randn(tokens, layout.cols, generator=generator).to(dtype)
    output_grad = torch.randn(tokens, layout.rows, generator=generator).to(dtype)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
    if transposed:
        x, output_grad = x.T.contiguous().T, output_grad.T.contiguous().T
    x64, grad64, weight64 = x.double(), output_grad.double(), weight.double()
    bias = torch.randn(layout.rows, generator=generator)
    expected = reference.linear(x64, weight64, topology)
    assert_close(block_linear_forward(x, weight, None, *topology), expected, dtype)
    assert_close(block_linear_forward(x, weight, bias, *topology), expected + bias, dtype)
    assert_close(
        block_linear_input_grad(output_grad, weight, *topology),
        reference.linear_input_grad(grad64, weight64, topology),
        dtype,
    )
    assert_close(
        block_linear_weight_grad(output_grad, x, *topology, x.dtype),
        reference.linear_weight_grad(grad64, x64, topology),
        dtype,
    )
    wanted = random_topology(layout, 0.7, generator)
    candidates = (wanted.block_rows, wanted.block_cols)
    assert_close(
        kernels.block_gradient_norms(output_grad, x, *candidates, [block, block]),
        reference.gradient_norms(grad64, x64, *candidates, (block, block)).double(),
        dtype,
    )


def test_linear_passes_and_norms_agree_with_float64(instruction_set: str) -> None:
    check_linear()


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    seed=st.integers(0, 2**31),
    block=blocks,
    dtype=dtypes,
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    stride=pairs,
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    size=st.tuples(st.integers(6, 18), st.integers(7, 18)),
    batch=st.integers(1, 3),
    density=st.sampled_from(DENSITIES),
    channels_last=st.booleans(),
)
@few_examples
def check_conv2d(
    seed: int,
    block: int,
    dtype: torch.dtype,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    size: tuple[int, int],
    batch: int,
    density: float,
    channels_last: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    geometry = Conv2dGeometry(kernel, stride, padding, dilation)
    lists, out_size = geometry.as_lists(), geometry.output_size(*size)
    in_channels, out_channels = 2 * block, 3 * block if block < 64 else block
    layout = BlockLayout(out_channels, kernel[0] * kernel[1] * in_channels, block, block)
    topology = random_topology(layout, density, generator)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(batch, in_channels, *size, generator=generator).to(dtype).to(memory_format=memory_format)
    output_grad = torch.randn(batch, out_channels, *out_size, generator=generator).to(dtype)
    output_grad = output_grad.to(memory_format=memory_format)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
    x64, grad64, weight64 = x.double(), output_grad.double(), weight.double()

    y = block_conv2d_forward(x, weight, None, *topology, *lists)
    assert y.stride() == torch.empty(y.shape, memory_format=memory_format_of(x)).stride()
    expected, bias = reference.conv2d(x64, weight64, topology, geometry), torch.randn(y.shape[1], generator=generator)
    assert_close(y, expected, dtype)
    with_bias = block_conv2d_forward(x, weight, bias, *topology, *lists)
    assert_close(with_bias, expected + bias[:, None, None], dtype)
    assert_close(
        block_conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *lists),
        reference.conv2d_input_grad(grad64, weight64, topology, list(x.shape), geometry),
        dtype,
    )
    assert_close(
        block_conv2d_weight_grad(output_grad, x, *topology, *lists, x.dtype),
        reference.conv2d_weight_grad(grad64, x64, topology, geometry),
        dtype,
    )
    wanted = random_topology(layout, 0.4, generator)
    candidates = (wanted.block_rows, wanted.block_cols)
    assert_close(
        kernels.block_conv2d_gradient_norms(output_grad, x, *candidates, [block, block], *lists),
        reference.conv2d_gradient_norms(grad64, x64, *candidates, (block, block), geometry).double(),
        dtype,
    )


def test_conv2d_passes_and_norms_agree_with_float64(instruction_set: str) -> None:
    check_conv2d()


def layer(
    tokens: int = 96, block: int = 16, grid: tuple[int, int] = (6, 4), density: float = 0.5
) -> tuple[Tensor, Tensor, Tensor, BlockTopology]:
    """``x``, ``output_grad``, ``weight`` and topology of a float32 layer."""
    generator = torch.Generator().manual_seed(7)
    layout = BlockLayout(grid[0] * block, grid[1] * block, block, block)
    topology = random_topology(layout, density, generator)
    x = torch.randn(tokens, layout.cols, generator=generator)
    output_grad = torch.randn(tokens, layout.rows, generator=generator)
    weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator)
    return x, output_grad, weight, topology


def test_results_larger_than_the_caches_are_right(instruction_set: str) -> None:
    # 2200 x 1024 floats exceed PAST_CACHES_BYTES, where stores take another path.
    x, output_grad, weight, topology = layer(tokens=2200, block=32, grid=(32, 32), density=0.1)
    assert_close(
        block_linear_forward(x, weight, None, *topology),
        reference.linear(x.double(), weight.double(), topology),
        torch.float32,
    )
    assert_close(
        block_linear_input_grad(output_grad, weight, *topology),
        reference.linear_input_grad(output_grad.double(), weight.double(), topology),
        torch.float32,
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_thread_count_is_right_and_gives_the_same_bits_twice(threads: int) -> None:
    x, output_grad, weight, topology = layer(tokens=333)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        results = [
            (
                block_linear_forward(x, weight, None, *topology),
                block_linear_input_grad(output_grad, weight, *topology),
                block_linear_weight_grad(output_grad, x, *topology, x.dtype),
            )
            for _ in range(2)
        ]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))
    expected = reference.linear_weight_grad(output_grad.double(), x.double(), topology)
    assert_close(results[0][2], expected, torch.float32)


def test_threads_of_the_caller_do_not_disturb_each_other() -> None:
    x, output_grad, _, topology = layer(tokens=300)
    expected = block_linear_weight_grad(output_grad, x, *topology, x.dtype)
    results: list[Tensor] = []
    workers = [
        threading.Thread(
            target=lambda: results.extend(
                block_linear_weight_grad(output_grad, x, *topology, x.dtype) for _ in range(20)
            )
        )
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 60
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nan_and_inf_pass_through_present_blocks_as_in_dense(
    value: float, dtype: torch.dtype, instruction_set: str
) -> None:
    x, output_grad, weight, topology = layer(density=1.0)
    x, output_grad, weight = x.to(dtype), output_grad.to(dtype), weight.to(dtype)
    x[5, 3] = output_grad[7, 9] = weight[2, 1, 4] = value
    for actual, expected in (
        (block_linear_forward(x, weight, None, *topology), reference.linear(x.float(), weight.float(), topology)),
        (
            block_linear_input_grad(output_grad, weight, *topology),
            reference.linear_input_grad(output_grad.float(), weight.float(), topology),
        ),
        (
            block_linear_weight_grad(output_grad, x, *topology, x.dtype),
            reference.linear_weight_grad(output_grad.float(), x.float(), topology),
        ),
    ):
        assert torch.equal(actual.isnan(), expected.isnan())
        assert torch.equal(actual.isposinf(), expected.isposinf())
        assert torch.equal(actual.isneginf(), expected.isneginf())


def test_bfloat16_rounds_to_nearest_even(instruction_set: str) -> None:
    layout = BlockLayout(16, 16, 16, 16)
    topology = BlockTopology.from_mask(layout, torch.ones(1, 1, dtype=torch.bool))
    x = torch.zeros(4, 16, dtype=torch.bfloat16)
    # Ties above an even and an odd bfloat16, and one just past a tie.
    x[:, 0] = torch.tensor([1.0, 1.0 + 2**-7, 1.0, -1.0])
    x[:, 1] = torch.tensor([2**-8, 2**-8, 2**-8 + 2**-15, -(2**-8)])
    weight = torch.zeros(1, 16, 16, dtype=torch.bfloat16)
    weight[0, 0, :2] = 1.0
    expected = (x[:, 0].float() + x[:, 1].float()).to(torch.bfloat16)
    assert torch.equal(block_linear_forward(x, weight, None, *topology)[:, 0], expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_nan_and_inf_of_one_image_stay_out_of_the_other_of_its_pair(
    value: float, batch: int, instruction_set: str
) -> None:
    generator = torch.Generator().manual_seed(5)
    geometry = Conv2dGeometry((3, 3), (1, 1), (1, 1))
    topology = random_topology(BlockLayout(16, 9 * 16, 16, 16), 1.0, generator)
    x = torch.randn(batch, 16, 5, 6, generator=generator).bfloat16()
    output_grad = torch.randn(batch, 16, 5, 6, generator=generator).bfloat16()
    x[-1, 3, 0, 5] = value
    output_grad[-1, :, :2, 4:] = 0  # dense gradients are zero there but for 0 x Inf
    actual = block_conv2d_weight_grad(output_grad, x, *topology, *geometry.as_lists(), x.dtype)
    expected = reference.conv2d_weight_grad(output_grad.float(), x.float(), topology, geometry)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf(), expected.isinf())


@pytest.mark.usefixtures("bfloat16_pairs")
def test_pairs_of_bfloat16_take_numbers_below_the_normal_ones_for_zero() -> None:
    layout = BlockLayout(16, 16, 16, 16)
    topology = BlockTopology.from_mask(layout, torch.ones(1, 1, dtype=torch.bool))
    x, weight = torch.zeros(1, 16, dtype=torch.bfloat16), torch.zeros(1, 16, 16, dtype=torch.bfloat16)
    x[0, 0], weight[0, 0, 0] = 2.0**-70, 2.0**-60
    assert block_linear_forward(x, weight, None, *topology)[0, 0] == 0
    with call.with_instruction_set("avx512"):
        assert block_linear_forward(x, weight, None, *topology)[0, 0] == 2.0**-130


@pytest.mark.usefixtures("bfloat16_pairs")
def test_float32_layers_have_the_same_bits_with_and_without_products_of_pairs() -> None:
    x, output_grad, weight, topology = layer()
    results = (
        block_linear_forward(x, weight, None, *topology),
        block_linear_weight_grad(output_grad, x, *topology, x.dtype),
    )
    with call.with_instruction_set("avx512"):
        assert torch.equal(results[0], block_linear_forward(x, weight, None, *topology))
        assert torch.equal(results[1], block_linear_weight_grad(output_grad, x, *topology, x.dtype))


def test_norms_name_a_block_twice_if_asked_and_keep_the_order_of_the_candidates() -> None:
    x, output_grad, _, _ = layer()
    rows, cols = torch.tensor([3, 0, 3, 5], dtype=torch.int32), torch.tensor([1, 2, 1, 0], dtype=torch.int32)
    expected = reference.gradient_norms(output_grad, x, rows, cols, (16, 16))
    torch.testing.assert_close(kernels.block_gradient_norms(output_grad, x, rows, cols, [16, 16]), expected)


def test_norms_of_more_blocks_than_fit_at_once_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "NORM_CHUNK_ELEMENTS", 5 * 16 * 16)
    x, output_grad, _, _ = layer()
    rows, cols = torch.nonzero(torch.ones(6, 4), as_tuple=True)
    expected = reference.gradient_norms(output_grad, x, rows, cols, (16, 16))
    torch.testing.assert_close(kernels.block_gradient_norms(output_grad, x, rows, cols, [16, 16]), expected)


def test_a_topology_that_points_outside_is_refused() -> None:
    x, output_grad, weight, topology = layer()
    broken = topology._replace(row_slots=topology.row_slots + 1000, col_slots=topology.col_slots - 1)
    with pytest.raises(TopologyError, match="rebuild it"):
        block_linear_forward(x, weight, None, *broken)
    with pytest.raises(TopologyError, match="rebuild it"):
        block_linear_input_grad(output_grad, weight, *broken)


def test_operands_that_do_not_fit_are_refused_as_torch_does() -> None:
    x, output_grad, weight, topology = layer()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        block_linear_forward(x.repeat(1, 2), weight, None, *topology)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        block_linear_input_grad(output_grad.repeat(1, 2), weight, *topology)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        block_linear_weight_grad(output_grad, x[:-1], *topology, x.dtype)


def test_opcheck_passes_for_every_op() -> None:
    x, output_grad, weight, topology = layer(tokens=10)
    x.requires_grad_()
    weight.requires_grad_()
    torch.library.opcheck(torch.ops.acf.block_linear.default, (x, weight, None, *topology))
    torch.library.opcheck(torch.ops.acf.block_linear_input_grad.default, (output_grad, weight.detach(), *topology))
    torch.library.opcheck(torch.ops.acf.block_linear_weight_grad.default, (output_grad, x.detach(), *topology, x.dtype))
    images = torch.randn(2, 64, 5, 6, requires_grad=True)
    pairs = ([1, 1], [1, 1], [0, 0], [1, 1])
    torch.library.opcheck(torch.ops.acf.block_conv2d.default, (images, weight, None, *topology, *pairs))


def test_gradients_flow_through_the_native_kernels() -> None:
    x, _, weight, topology = layer(tokens=10)
    x.requires_grad_()
    weight.requires_grad_()
    block_linear(x, weight, topology).square().sum().backward()
    x64 = x.detach().double().requires_grad_()
    weight64 = weight.detach().double().requires_grad_()
    reference.linear(x64, weight64, topology).square().sum().backward()
    for actual, expected in ((x, x64), (weight, weight64)):
        assert actual.grad is not None
        assert expected.grad is not None
        assert_close(actual.grad, expected.grad, torch.float32)


def test_an_image_without_a_single_output_pixel_is_refused_as_torch_does() -> None:
    _, _, weight, topology = layer()
    with pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
        block_conv2d(torch.randn(1, 16, 1, 1), weight, topology, Conv2dGeometry((2, 2)))


@pytest.mark.parametrize("dtype", sorted(RELATIVE_ERROR, key=str))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_in_the_epilogue_gives_value_and_slope(
    instruction_set: str, activation: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    for block, tokens in ((8, 5), (16, 0), (32, 70), (64, 33)):
        layout = BlockLayout(2 * block, 3 * block, block, block)
        topology = random_topology(layout, 0.6, generator)
        weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
        x = torch.randn(tokens, 3 * block, generator=generator).to(dtype)
        bias = torch.randn(2 * block, generator=generator)
        value, slope = kernels.block_linear_activation(x, weight, bias, activation, False, *topology)
        hidden = reference.linear(x.double(), weight.double(), topology, bias.double())
        expected_value, expected_slope = ACTIVATIONS[activation](hidden)
        assert value.dtype == slope.dtype == dtype
        assert_close(value, expected_value, dtype)
        if activation != "relu":  # its slope jumps at zero, where sums round to either side
            assert_close(slope, expected_slope, dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_in_the_epilogue_keeps_tails_and_nan(instruction_set: str, activation: str) -> None:
    block = 16
    topology = BlockTopology.build(BlockLayout(block, block, block, block), torch.tensor([0]), torch.tensor([0]))
    special = [-1e4, -100.0, -87.5, -20.0, -8.0, -3.0, -1e-3, -0.0, 0.0, 1e-3, 3.0, 8.0, 20.0, 87.5, 100.0, 1e4]
    x = torch.zeros(2, block)
    bias = torch.tensor(special)
    x[1, 0] = torch.nan
    weight = torch.zeros(1, block, block)
    value, slope = kernels.block_linear_activation(x, weight, bias, activation, False, *topology)
    expected_value, expected_slope = ACTIVATIONS[activation](bias.double())
    torch.testing.assert_close(value[0].double(), expected_value, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(slope[0].double(), expected_slope, rtol=2e-6, atol=2e-6)
    assert value[1].isnan().all()


@pytest.mark.parametrize("dtype", sorted(RELATIVE_ERROR, key=str))
def test_a_scale_in_the_epilogue_multiplies_the_input_gradient(instruction_set: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    for block, tokens in ((8, 5), (16, 0), (32, 70), (64, 33)):
        layout = BlockLayout(2 * block, 3 * block, block, block)
        topology = random_topology(layout, 0.6, generator)
        weight = torch.randn(topology.block_rows.numel(), block, block, generator=generator).to(dtype)
        output_grad = torch.randn(tokens, 2 * block, generator=generator).to(dtype)
        scale = torch.randn(3 * block, tokens, generator=generator).to(dtype).T  # not contiguous
        actual = kernels.block_linear_scaled_input_grad(output_grad, weight, scale, *topology)
        gradient = reference.linear_input_grad(output_grad.double(), weight.double(), topology)
        assert_close(actual, gradient * scale.double(), dtype)


def test_large_results_of_an_epilogue_are_written_past_the_caches_alike() -> None:
    generator = torch.Generator().manual_seed(2)
    layout = BlockLayout(1024, 64, 32, 32)
    topology = random_topology(layout, 0.2, generator)
    weight = torch.randn(topology.block_rows.numel(), 32, 32, generator=generator)
    x = torch.randn(2100, 64, generator=generator)  # 8.6 MB of results
    value, slope = kernels.block_linear_activation(x, weight, None, "gelu", False, *topology)
    part = [kernels.block_linear_activation(x[:512], weight, None, "gelu", False, *topology)[index] for index in (0, 1)]
    torch.testing.assert_close(value[:512], part[0], rtol=0, atol=0)
    torch.testing.assert_close(slope[:512], part[1], rtol=0, atol=0)
