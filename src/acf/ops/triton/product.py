"""Launching the forward and input-gradient products of linear layers."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.triton import warp_specialised
from acf.ops.triton.configs import product_configs
from acf.ops.triton.launch import Tiled, known_launch, launch
from acf.ops.triton.product_kernels import (
    product_descriptor_kernel,
    product_gather_kernel,
    product_transposed_kernel,
)
from acf.ops.triton.support import ceil_div, dot_precision, readable, supports
from acf.ops.triton.transpose import transposed
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.sparse import BlockTopology


class PreparedProduct(NamedTuple):
    """The launch of one problem, and whether it reads the transpose of x."""

    launch: Callable[..., bool]
    transposes: bool

    def __call__(self, x: Tensor, *rest: Tensor) -> bool:
        """Fill the output; False where Triton has to launch."""
        return self.launch(transposed(x) if self.transposes else x, *rest)


_PREPARED: dict[Hashable, PreparedProduct] = {}


class Walk(NamedTuple):
    """The order in which a pass visits the blocks: groups of slots, and the block index of x each slot meets."""

    offsets: Tensor
    slots: Tensor
    indices: Tensor

    @property
    def groups(self) -> int:
        """Block rows in the forward pass, block columns in the input gradient."""
        return self.offsets.numel() - 1


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *tensors: Tensor) -> Tensor:
    """`reference.linear` on the GPU."""
    _, block_cols, row_offsets, row_slots, _, _ = tensors
    return _product(x, weight, bias, (row_offsets, row_slots, block_cols), tensors, True)


def linear_input_grad(output_grad: Tensor, weight: Tensor, *tensors: Tensor) -> Tensor:
    """`reference.linear_input_grad` on the GPU."""
    block_rows, _, _, _, col_offsets, col_slots = tensors
    return _product(output_grad, weight, None, (col_offsets, col_slots, block_rows), tensors, False)


def walk_of(topology: BlockTopology, forward: bool) -> Walk:
    """Block rows for the forward pass, block columns for the input gradient."""
    if forward:
        return Walk(topology.row_offsets, topology.row_slots, topology.block_cols)
    return Walk(topology.col_offsets, topology.col_slots, topology.block_rows)


def _product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    walk: tuple[Tensor, Tensor, Tensor],
    tensors: tuple[Tensor, ...],
    forward: bool,
) -> Tensor:
    """A known problem takes a look-up and a launch only: for small layers the host's time counts."""
    groups, precision = walk[0].shape[0] - 1, dot_precision(x.dtype)
    dtypes = (x.dtype, weight.dtype, None if bias is None else bias.dtype)
    signature = (forward, x.shape, weight.shape, groups, *dtypes, precision, x.get_device())
    prepared = known_launch(_PREPARED, signature)
    if prepared is not None:
        x, weight, shift = x.contiguous(), weight.contiguous(), weight if bias is None else bias.contiguous()
        out = x.new_empty((x.shape[0], groups * weight.shape[1]))
        if prepared(x, weight, out, shift, *walk):
            return out
    return _first_product(x, weight, bias, BlockTopology(*tensors), forward, signature)


def _first_product(
    x: Tensor, weight: Tensor, bias: Tensor | None, topology: BlockTopology, forward: bool, signature: Hashable
) -> Tensor:
    """The product of a problem that has not been prepared."""
    block, groups, precision = weight.shape[1], walk_of(topology, forward).groups, dot_precision(x.dtype)
    if not supports((block, weight.shape[2]), x, weight):
        if forward:
            return reference.linear(x, weight, topology, bias)
        return reference.linear_input_grad(x, weight, topology)
    x, weight, bias = readable(x), readable(weight), None if bias is None else readable(bias)
    out = x.new_empty((x.shape[0], groups * block))

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
        signature,
        describe,
        product_configs(block, x.itemsize, precision, warp_specialised.gains_by_warp_specialisation(x, weight)),
        lambda candidate: launch_product(candidate, x, weight, out, topology, forward, bias),
    )
    prepared = launch_product(config, x, weight, out, topology, forward, bias)
    if prepared is not None and TUNER.remembers(signature):
        _PREPARED[signature] = PreparedProduct(prepared, config.kernel == "transposed")
    return out


def launch_product(
    config: LaunchConfig,
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    topology: BlockTopology,
    forward: bool,
    bias: Tensor | None = None,
) -> Callable[..., bool] | None:
    """Fill ``out [tokens, groups * block]`` from contiguous ``x [tokens, width]``, ``weight [nnz, B, B]`` and a bias.

    The operands of the launch are ``x`` or its transpose, ``weight``, ``out``, the bias (or ``weight`` in its place)
    and the walk; None where it cannot be repeated.
    """
    if config.kernel == "dense":
        _launch_dense(x, reference.unpack(weight, topology), out, forward, bias)
        return None
    (tokens, width), block, walk = x.shape, weight.shape[1], walk_of(topology, forward)
    if config.kernel == "warp-specialised":
        return warp_specialised.launch_product(config, x, weight, out, walk, forward, bias)
    programs, shift = walk.groups * ceil_div(tokens, config.tile), weight if bias is None else bias
    constants: dict[str, Any] = {
        "block": block, "token_tile": config.tile, "forward": forward, "has_bias": bias is not None,
        "precision": dot_precision(x.dtype), "num_warps": config.warps, "num_stages": config.stages,
    }  # fmt: skip
    if config.kernel == "gather":
        return launch(
            product_gather_kernel, programs, (x, weight, out, shift, *walk), (walk.groups, tokens, width, out.shape[1]),
            pack=config.pack, swap=config.swap, **constants,
        )  # fmt: skip
    weight_rows, out_tiles = weight.view(-1, block), Tiled(out, [config.tile, block])
    if config.kernel == "transposed":
        operands = (Tiled(transposed(x), [block, config.tile]), Tiled(weight_rows, [block, block]))
        return launch(
            product_transposed_kernel, programs, (*operands, out_tiles, shift, *walk), (walk.groups,), **constants
        )
    weight_tiles = Tiled(weight_rows, [block, config.depth] if forward else [config.depth, block])
    return launch(
        product_descriptor_kernel,
        programs,
        (Tiled(x, [config.tile, config.depth]), weight_tiles, out_tiles, shift, *walk),
        (walk.groups, width, weight_rows.shape[0]),
        depth=config.depth, pack=config.pack, swap=config.swap, **constants,
    )  # fmt: skip


def _launch_dense(x: Tensor, dense: Tensor, out: Tensor, forward: bool, bias: Tensor | None) -> None:
    factor = dense.T if forward else dense
    if bias is None:
        torch.mm(x, factor, out=out)
    else:
        torch.addmm(bias.to(x.dtype), x, factor, out=out)
