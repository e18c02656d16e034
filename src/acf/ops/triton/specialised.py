"""Launching the products whose warps are divided by what they do, on the chips that can run them."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import triton
from torch import Tensor

from acf.ops.triton.launch import PreparedLaunch, Tiled, launch
from acf.ops.triton.support import ceil_div, next_power_of_two
from acf.ops.triton.tuning import LaunchConfig

GLUON_VERSIONS = ("3.6.",)
"""Versions of Triton whose Gluon the kernels are written for; it is experimental and changes with each."""

REGISTERS = 168
"""Registers of a thread: 384 threads leave no more."""

SORTED_TILES = 1
"""The last tiles, so many for each program, are taken by falling size."""

LEAST_OPERATIONS = 2e10
"""What takes the device 40 us at 500 TFLOP/s. The host takes 32 us for a call with one launch, and this has two."""


@cache
def has_specialised(device: int) -> bool:
    """Whether ``device`` is a Hopper chip and Triton has the Gluon that the kernels are written in."""
    return (
        device >= 0
        and torch.cuda.get_device_capability(device) == (9, 0)
        and triton.__version__.startswith(GLUON_VERSIONS)
        and find_spec("triton.experimental.gluon") is not None
    )


def gains_by_specialising(x: Tensor, weight: Tensor) -> bool:
    """Whether the product of ``x [tokens, width]`` with blocks ``weight`` can be specialised and is large enough."""
    return 2 * x.shape[0] * weight.numel() >= LEAST_OPERATIONS and has_specialised(x.get_device())


@dataclass(frozen=True)
class Swizzled(Tiled):
    """A `Tiled` operand of a Gluon kernel, which has to know how a box lies in shared memory."""

    def descriptor(self) -> Any:
        """Rows of up to 128 bytes, their pieces of 16 bytes exchanged such that columns are read without conflicts."""
        from triton.experimental.gluon.language import NVMMASharedLayout
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        itemsize = self.tensor.itemsize
        layout = NVMMASharedLayout(min(128, itemsize * self.box[-1]), 8 * itemsize, rank=2)
        return TensorDescriptor.from_tensor(self.tensor, self.box, layout)


@dataclass(frozen=True)
class PreparedSpecialised:
    """The launches of one problem: the schedule of its output tiles, and the product."""

    schedule: PreparedLaunch
    product: PreparedLaunch

    def __call__(self, x: Tensor, weight: Tensor, out: Tensor, offsets: Tensor, slots: Tensor, indices: Tensor) -> bool:
        """Fill ``out``; False where Triton has to launch."""
        schedule = torch.empty_like(offsets)
        return self.schedule(offsets, schedule) and self.product(x, weight, out, offsets, slots, indices, schedule)


def launch_specialised(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    walk: tuple[Tensor, Tensor, Tensor],
    forward: bool,
) -> PreparedSpecialised | None:
    """`product.launch_product` for blocks of 128 or 64 in 16 bits."""
    from acf.ops.triton.specialised_kernels import product_specialised_kernel, schedule_kernel

    block, groups, panels = weight.shape[1], walk[0].numel() - 1, ceil_div(x.shape[0], config.tile)
    programs = min(torch.cuda.get_device_properties(x.device).multi_processor_count, groups * panels)
    sorted_panels = min(panels, ceil_div(SORTED_TILES * programs, groups))
    schedule = torch.empty_like(walk[0])
    span = max(16, next_power_of_two(groups))
    ordered = launch(schedule_kernel, 1, (walk[0], schedule), (groups,), span=span, num_warps=4)
    product = launch(
        product_specialised_kernel,
        programs,
        (
            Swizzled(x, [256, config.depth]),
            Swizzled(weight.view(-1, block), [block, config.depth] if forward else [config.depth, block]),
            Swizzled(out, [128 if block == 128 else 256, 64]),
            *walk,
            schedule,
        ),
        (groups, panels, sorted_panels),
        block=block, depth=config.depth, stages=config.stages, forward=forward,
        num_warps=config.warps, maxnreg=REGISTERS,
    )  # fmt: skip
    return None if ordered is None or product is None else PreparedSpecialised(ordered, product)
