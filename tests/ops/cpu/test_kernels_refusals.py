"""What the native kernels refuse."""

import pytest
import torch

from acf.errors import TopologyError
from acf.ops import Conv2dGeometry, block_conv2d
from acf.ops.linear import block_linear_forward, block_linear_input_grad, block_linear_weight_grad
from tests.ops.cpu.layers import layer, needs_compiler

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
