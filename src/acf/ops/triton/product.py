"""Launching the forward and input-gradient products of linear layers."""

from typing import NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from acf.ops import reference
from acf.ops.triton.configs import product_configs
from acf.ops.triton.product_kernels import product_descriptor_kernel, product_gather_kernel
from acf.ops.triton.support import ceil_div, dot_precision, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.sparse import BlockTopology


class Walk(NamedTuple):
    """The order in which a pass visits the blocks: groups of slots, and the block index of x each slot meets."""

    offsets: Tensor
    slots: Tensor
    indices: Tensor

    @property
    def groups(self) -> int:
        """Block rows in the forward pass, block columns in the input gradient."""
        return self.offsets.numel() - 1


def linear(x: Tensor, weight: Tensor, *tensors: Tensor) -> Tensor:
    """`reference.linear` on the GPU."""
    topology = BlockTopology(*tensors)
    if not supports((weight.shape[1], weight.shape[2]), x, weight):
        return reference.linear(x, weight, topology)
    return _product(x, weight, topology, forward=True)


def linear_input_grad(output_grad: Tensor, weight: Tensor, *tensors: Tensor) -> Tensor:
    """`reference.linear_input_grad` on the GPU."""
    topology = BlockTopology(*tensors)
    if not supports((weight.shape[1], weight.shape[2]), output_grad, weight):
        return reference.linear_input_grad(output_grad, weight, topology)
    return _product(output_grad, weight, topology, forward=False)


def walk_of(topology: BlockTopology, forward: bool) -> Walk:
    """Block rows for the forward pass, block columns for the input gradient."""
    if forward:
        return Walk(topology.row_offsets, topology.row_slots, topology.block_cols)
    return Walk(topology.col_offsets, topology.col_slots, topology.block_rows)


def _product(x: Tensor, weight: Tensor, topology: BlockTopology, forward: bool) -> Tensor:
    x, weight = readable(x), readable(weight)
    block, groups = weight.shape[1], walk_of(topology, forward).groups
    out = torch.empty((x.shape[0], groups * block), dtype=x.dtype, device=x.device)
    precision = dot_precision(x.dtype)

    def describe() -> ProblemKey:
        return ProblemKey(
            "forward" if forward else "input_grad",
            groups * block,
            x.shape[1],
            block,
            str(x.dtype),
            precision,
            density_bucket(weight.shape[0], groups, x.shape[1] // block),
            token_bucket(x.shape[0]),
        )

    config = TUNER.choose(
        (forward, x.shape, weight.shape, groups, x.dtype, precision),
        describe,
        product_configs(block, x.itemsize, precision),
        lambda candidate: launch_product(candidate, x, weight, out, topology, forward),
    )
    launch_product(config, x, weight, out, topology, forward)
    return out


def launch_product(
    config: LaunchConfig, x: Tensor, weight: Tensor, out: Tensor, topology: BlockTopology, forward: bool
) -> None:
    """Fill ``out [tokens, groups * block]`` from contiguous ``x [tokens, width]`` and ``weight [nnz, B, B]``."""
    if config.kernel == "dense":
        dense = reference.unpack(weight, topology)
        torch.mm(x, dense.T if forward else dense, out=out)
        return
    (tokens, width), block, walk = x.shape, weight.shape[1], walk_of(topology, forward)
    grid = (walk.groups * ceil_div(tokens, config.tile),)
    precision = dot_precision(x.dtype)
    if config.kernel == "gather":
        product_gather_kernel[grid](
            x, weight, out, *walk, walk.groups, tokens, width, out.shape[1],
            block=block, token_tile=config.tile, pack=config.pack, forward=forward, swap=config.swap,
            precision=precision, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
        return
    weight_rows = weight.view(-1, block)
    weight_tile = [block, config.depth] if forward else [config.depth, block]
    product_descriptor_kernel[grid](
        TensorDescriptor.from_tensor(x, [config.tile, config.depth]),
        TensorDescriptor.from_tensor(weight_rows, weight_tile),
        TensorDescriptor.from_tensor(out, [config.tile, block]),
        *walk, walk.groups, width, weight_rows.shape[0],
        block=block, token_tile=config.tile, depth=config.depth, pack=config.pack, forward=forward,
        swap=config.swap, precision=precision, num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
