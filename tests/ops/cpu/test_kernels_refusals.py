"""What the native kernels refuse."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.ops import Conv2dGeometry, block_conv2d, reference
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from acf.sparse import BlockLayout, BlockTopology
from tests.ops.cpu.layers import assert_close, layer, needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("native_at_any_density")]


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


def test_an_image_without_a_single_output_pixel_is_refused_as_torch_does() -> None:
    _, _, weight, topology = layer()
    with pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
        block_conv2d(torch.randn(1, 16, 1, 1), weight, topology, Conv2dGeometry((2, 2)))


BROKEN: dict[str, Callable[[Tensor], Tensor]] = {
    "of 64-bit integers": lambda each: each.long(),
    "of fractions": lambda each: each.float(),
    "with too few entries": lambda each: each[:1],
    "with too many entries": lambda each: each.repeat(2),
}


@pytest.mark.parametrize("array", ["block_rows", "block_cols", "row_slots", "col_slots"])
@pytest.mark.parametrize("how", BROKEN)
def test_indices_that_native_code_would_misread_are_refused(array: str, how: str) -> None:
    x, output_grad, weight, topology = layer()
    broken = topology._replace(**{array: BROKEN[how](getattr(topology, array))})
    by_rows: list[Callable[[], object]] = [
        lambda: block_linear_forward(x, weight, None, *broken),
        lambda: block_linear_weight_grad(output_grad, x, *broken, x.dtype),
    ]
    by_columns = [lambda: block_linear_input_grad(output_grad, weight, *broken)]
    for call in by_columns if array in ("block_rows", "col_slots") else by_rows:
        with pytest.raises(TopologyError, match=r"rebuild it with BlockTopology.build|pass the topology"):
            call()


@pytest.mark.parametrize("array", ["row_offsets", "col_offsets"])
def test_offsets_of_64_bits_are_refused(array: str) -> None:
    x, output_grad, weight, topology = layer()
    broken = topology._replace(**{array: getattr(topology, array).long()})
    multiply: Callable[[BlockTopology], Tensor] = (
        (lambda topology: block_linear_forward(x, weight, None, *topology))
        if array == "row_offsets"
        else (lambda topology: block_linear_input_grad(output_grad, weight, *topology))
    )
    with pytest.raises(TopologyError, match=r"are int64 \[\d+\], int32 .*; rebuild it"):
        multiply(broken)


def test_operands_that_the_blocks_do_not_divide_are_refused() -> None:
    x, output_grad, _, topology = layer(grid=(20, 4))
    wider = torch.cat([output_grad, output_grad[:, :16]], 1)  # one block more than 20, so that its height is still 16
    with pytest.raises(ValueError, match="is not the 320 x 64 of this layout"):
        block_linear_weight_grad(wider, x, *topology, x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_block_of_channels_at_two_kernel_taps_is_multiplied_as_the_reference_does(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    geometry = Conv2dGeometry((2, 1))  # 2 taps x 12 channels: the second of three blocks of 8 holds 4 of each tap
    topology = BlockTopology.from_mask(BlockLayout(8, 24, 8, 8), torch.tensor([[True, True, False]]))
    x, weight = torch.randn(1, 12, 5, 5, generator=generator), torch.randn(2, 8, 8, generator=generator)
    y = block_conv2d(x.to(dtype), weight.to(dtype), topology, geometry)
    assert_close(y, reference.conv2d(x.to(dtype).double(), weight.to(dtype).double(), topology, geometry), dtype)
