"""Launching the persistent, warp-specialised kernels, on the chips that can run them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import triton
from torch import Tensor

from acf.ops.dense import dense_chosen
from acf.ops.triton.launch import PreparedLaunch, Tiled, launch
from acf.ops.triton.support import ceil_div, next_power_of_two
from acf.ops.triton.tuning import LaunchConfig

GLUON_VERSIONS = ("3.6.",)
"""Versions of Triton whose Gluon the kernels are written for: it is experimental and changes with each release."""

REGISTERS = 168
"""Registers per thread: a multiprocessor has no more for 384 threads."""

SORTED_TILES = 1
"""The last tiles, this many per program, are taken longest first (LPT), so that all programs end together."""

LEAST_OPERATIONS = 2e10
"""Work of 40 us at 500 TFLOP/s: below it the second launch, of the schedule, takes the host longer than it saves."""


@cache
def has_warp_specialisation(device: int) -> bool:
    """Whether ``device`` is a Hopper chip and Triton has the Gluon that the kernels are written in."""
    return (
        device >= 0
        and torch.version.hip is None  # there (9, 0) is a chip of another maker
        and torch.cuda.get_device_capability(device) == (9, 0)
        and triton.__version__.startswith(GLUON_VERSIONS)
        and find_spec("triton.experimental.gluon") is not None
    )


def gains_by_warp_specialisation(x: Tensor, weight: Tensor) -> bool:
    """Whether the product of ``x [tokens, width]`` with blocks ``weight`` is large enough for such a kernel."""
    return 2 * x.shape[0] * weight.numel() >= LEAST_OPERATIONS and has_warp_specialisation(x.get_device())


def has_packed_slopes(x: Tensor, first_weight: Tensor, second_weight: Tensor) -> bool:
    """Whether the two products around an activation, the first of ``x [tokens, in]``, both run in these kernels."""
    shapes = {weight.shape[1:] for weight in (first_weight, second_weight)}
    return (
        not dense_chosen()
        and all(tensor.dtype == torch.bfloat16 for tensor in (x, first_weight, second_weight))
        and shapes in ({(64, 64)}, {(128, 128)})
        and gains_by_warp_specialisation(x, first_weight)
        and gains_by_warp_specialisation(x, second_weight)
    )


@dataclass(frozen=True)
class Swizzled(Tiled):
    """A `Tiled` operand of a Gluon kernel, which has to know how a box lies in shared memory."""

    def descriptor(self) -> Any:
        """Rows of up to 128 bytes, swizzled in chunks of 16 bytes so that columns are read without bank conflicts."""
        from triton.experimental.gluon.language import NVMMASharedLayout
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        itemsize = self.tensor.itemsize
        layout = NVMMASharedLayout(min(128, itemsize * self.box[-1]), 8 * itemsize, rank=2)
        return TensorDescriptor.from_tensor(self.tensor, self.box, layout)


@dataclass(frozen=True)
class PreparedWarpSpecialised:
    """The launches of one problem: the schedule of its output tiles, and the product."""

    schedule: PreparedLaunch
    product: PreparedLaunch

    def __call__(self, *operands: Tensor) -> bool:
        """Fill the outputs among ``operands``, whose last three are the walk; False where Triton has to launch."""
        offsets = operands[-3]
        schedule = torch.empty_like(offsets)
        return self.schedule(offsets, schedule) and self.product(*operands, schedule)


def launch_product(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    walk: tuple[Tensor, Tensor, Tensor],
    forward: bool,
    bias: Tensor | None,
) -> PreparedWarpSpecialised | None:
    """`acf.ops.triton.product.launch_product` for blocks of 128 or 64 in 16 bits."""
    from acf.ops.triton.warp_specialised_kernels import product_warp_specialised_kernel

    results = (_output(out, weight), weight if bias is None else bias)
    constants = {"forward": forward, "has_bias": bias is not None}
    return _launch(product_warp_specialised_kernel, config, (x, weight, forward), results, walk, constants)


def launch_activation(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    results: tuple[Tensor, Tensor],
    walk: tuple[Tensor, Tensor, Tensor],
    activation: str,
) -> PreparedWarpSpecialised | None:
    """`acf.ops.triton.mlp.launch_activation` for blocks of 128 or 64 in bfloat16, the slope packed."""
    from acf.ops.triton.warp_specialised_kernels import activation_warp_specialised_kernel

    activated, slope = results
    operands = (_output(activated, weight), slope, weight if bias is None else bias)
    constants = {"has_bias": bias is not None, "activation": activation}
    return _launch(activation_warp_specialised_kernel, config, (x, weight, True), operands, walk, constants)


def launch_scaled(
    config: LaunchConfig,
    output_grad: Tensor,
    weight: Tensor,
    slope: Tensor,
    out: Tensor,
    walk: tuple[Tensor, Tensor, Tensor],
) -> PreparedWarpSpecialised | None:
    """`acf.ops.triton.mlp.launch_scaled` for blocks of 128 or 64 in bfloat16, by a packed ``slope``."""
    from acf.ops.triton.warp_specialised_kernels import scaled_warp_specialised_kernel

    results = (slope, _output(out, weight))
    return _launch(scaled_warp_specialised_kernel, config, (output_grad, weight, False), results, walk, {})


def _output(out: Tensor, weight: Tensor) -> Swizzled:
    """The part of the result that passes through shared memory at a time."""
    return Swizzled(out, [128 if weight.shape[1] == 128 else 256, 64])


def _launch(
    kernel: Any,
    config: LaunchConfig,
    factors: tuple[Tensor, Tensor, bool],
    results: Sequence[Tensor | Tiled],
    walk: tuple[Tensor, Tensor, Tensor],
    constants: dict[str, Any],
) -> PreparedWarpSpecialised | None:
    """Order the output tiles and launch ``kernel`` on x, the weight (``forward`` or not) and what its results need."""
    from acf.ops.triton.warp_specialised_kernels import schedule_kernel

    x, weight, forward = factors
    block, groups, panels = weight.shape[1], walk[0].numel() - 1, ceil_div(x.shape[0], config.tile)
    programs = min(torch.cuda.get_device_properties(x.device).multi_processor_count, groups * panels)
    sorted_panels = min(panels, ceil_div(SORTED_TILES * programs, groups))
    schedule, span = torch.empty_like(walk[0]), max(16, next_power_of_two(groups))
    ordered = launch(schedule_kernel, 1, (walk[0], schedule), (groups,), span=span, num_warps=4)
    weight_box = [block, config.depth] if forward else [config.depth, block]
    product = launch(
        kernel,
        programs,
        (
            Swizzled(x, [256, config.depth]), Swizzled(weight.view(-1, block), weight_box), *results, *walk, schedule,
        ),
        (groups, panels, sorted_panels),
        **constants, block=block, depth=config.depth, stages=config.stages,
        num_warps=config.warps, maxnreg=REGISTERS,
    )  # fmt: skip
    return None if ordered is None or product is None else PreparedWarpSpecialised(ordered, product)
