"""Launching the gradients of a linear layer's weight and bias."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from acf.ops import reference
from acf.ops.reference import grid_cols, grid_rows
from acf.ops.triton.bias_grad import bias_grad, launch_bias_grad
from acf.ops.triton.configs import weight_grad_configs
from acf.ops.triton.launch import PreparedLaunch, Tiled, known_launch, launch
from acf.ops.triton.support import DTYPES, ceil_div, dot_precision, next_power_of_two, readable, supports
from acf.ops.triton.transpose import transposed
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.ops.triton.weight_grad_kernels import (
    sum_splits_kernel,
    weight_grad_descriptor_kernel,
    weight_grad_gather_kernel,
    weight_grad_transposed_kernel,
)
from acf.sparse import BlockTopology

SUMMED_VALUES, SUM_WIDTHS = 4096, (128, 1024)
"""Values that a program sums, and the least and the most columns of them."""

FILL_PROGRAMS = 264
"""Two programs on each of the 132 multiprocessors of a Hopper chip: fewer leave it idle."""


@dataclass(frozen=True)
class Owners:
    """One of the two ways to group blocks: by column, sharing tiles of x, or by row, sharing the output gradient."""

    offsets: Tensor
    slots: Tensor
    shared: Tensor
    gathered: Tensor
    shared_index: Tensor
    gathered_index: Tensor
    transposed: bool

    @property
    def count(self) -> int:
        """Number of block columns, or of block rows."""
        return self.offsets.numel() - 1

    def operands(self, parts: Tensor) -> tuple[Tensor, ...]:
        """The tensors of a launch that leaves its result in ``parts``, in the kernels' order."""
        indices = (self.gathered_index,) if self.transposed else (self.shared_index, self.gathered_index)
        return (self.shared, self.gathered, parts, self.offsets, self.slots, *indices)


def owners_of(topology: BlockTopology, output_grad: Tensor, x: Tensor, config: LaunchConfig) -> Owners:
    """Blocks grouped as ``config`` has it; its kernel says whether the gathered operand is transposed."""
    rows, cols, turned = topology.block_rows, topology.block_cols, config.kernel == "transposed"
    if config.by_input:
        gathered = transposed(output_grad) if turned else output_grad
        return Owners(topology.col_offsets, topology.col_slots, x, gathered, cols, rows, turned)
    gathered = transposed(x) if turned else x
    return Owners(topology.row_offsets, topology.row_slots, output_grad, gathered, rows, cols, turned)


def split_choices(blocks: int) -> tuple[int, ...]:
    """Numbers of token splits worth timing: enough to fill the chip once or twice, since every split is added up.

    >>> split_choices(2000), split_choices(400), split_choices(19)
    ((1,), (1, 2), (8, 16))
    """
    fill = min(32, next_power_of_two(ceil_div(FILL_PROGRAMS // 2, max(1, blocks))))
    return (1,) if blocks >= 2 * FILL_PROGRAMS else (fill, 2 * fill)


@dataclass(frozen=True)
class PreparedWeightGrad:
    """The launches of one problem: the parts of the gradient, and their sums where there are several.

    ``fuses_bias``: the first launch leaves the parts of the bias gradient too, else column sums are launched for it.
    """

    config: LaunchConfig
    splits: int
    fuses_bias: bool
    parts: PreparedLaunch
    total: PreparedLaunch | None
    bias_total: PreparedLaunch | None

    def __call__(
        self, output_grad: Tensor, x: Tensor, out: Tensor, bias: Tensor | None, topology: tuple[Tensor, ...]
    ) -> bool:
        """Fill ``out`` and ``bias``; False where Triton has to launch. The operands are those of `Owners`."""
        rows, cols, row_offsets, row_slots, col_offsets, col_slots = topology
        parts = split_buffer(out, self.splits)
        bias_parts = split_buffer(bias, self.splits) if bias is not None and self.fuses_bias else parts
        operands = [output_grad, x, parts, row_offsets, row_slots, rows, cols]
        if self.config.by_input:
            operands = [x, output_grad, parts, col_offsets, col_slots, cols, rows]
        if self.config.kernel == "transposed":
            operands[1] = transposed(operands[1])
            del operands[5]
        if self.config.kernel == "gather":
            operands.append(bias_parts)
        if not self.parts(*operands) or not (self.total is None or self.total(parts, out)):
            return False
        if bias is None:
            return True
        if not self.fuses_bias:
            launch_bias_grad(output_grad, bias)
            return True
        return self.bias_total is None or self.bias_total(bias_parts, bias)


_PREPARED: dict[Hashable, PreparedWeightGrad] = {}


def linear_weight_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    """`reference.linear_weight_grad` on the GPU."""
    return _weight_grad(output_grad, x, rest[:6], (rest[6], None))[0]


def linear_weight_and_bias_grad(output_grad: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """`reference.linear_weight_grad` and `reference.bias_grad` on the GPU, from one pass over the output gradient."""
    weight_grad, bias = _weight_grad(output_grad, x, rest[:6], (rest[6], rest[7]))
    assert bias is not None
    return weight_grad, bias


def _weight_grad(
    output_grad: Tensor, x: Tensor, tensors: tuple[Tensor, ...], dtypes: tuple[torch.dtype, torch.dtype | None]
) -> tuple[Tensor, Tensor | None]:
    """Gradients of weight and bias in ``dtypes``; None where the bias has none."""
    precision = dot_precision(x.dtype)
    blocks, rows, cols = tensors[0].shape[0], tensors[2].shape[0] - 1, tensors[4].shape[0] - 1
    signature = (
        output_grad.shape, x.shape, blocks, rows, cols,
        x.dtype, output_grad.dtype, *dtypes, precision, x.get_device(),
    )  # fmt: skip
    prepared = known_launch(_PREPARED, signature)
    if prepared is not None:
        output_grad, x = output_grad.contiguous(), x.contiguous()
        block = output_grad.shape[1] // rows
        out, bias = _buffers(output_grad, (blocks, block, block), dtypes)
        if prepared(output_grad, x, out, bias, tensors):
            return out, bias
    return _first_weight_grad(output_grad, x, BlockTopology(*tensors), dtypes, signature)


def _buffers(
    output_grad: Tensor, shape: tuple[int, int, int], dtypes: tuple[torch.dtype, torch.dtype | None]
) -> tuple[Tensor, Tensor | None]:
    bias = None if dtypes[1] is None else output_grad.new_empty(output_grad.shape[1], dtype=dtypes[1])
    return output_grad.new_empty(shape, dtype=dtypes[0]), bias


def _first_weight_grad(
    output_grad: Tensor,
    x: Tensor,
    topology: BlockTopology,
    dtypes: tuple[torch.dtype, torch.dtype | None],
    signature: Hashable,
) -> tuple[Tensor, Tensor | None]:
    """The gradients of a problem that has not been prepared."""
    rows, cols = grid_rows(topology), grid_cols(topology)
    block, blocks, precision = output_grad.shape[1] // rows, topology.block_rows.numel(), dot_precision(x.dtype)
    known = all(dtype in (None, *DTYPES) for dtype in dtypes)
    if blocks == 0 or not known or not supports((block, x.shape[1] // cols), output_grad, x):
        bias = None if dtypes[1] is None else bias_grad(output_grad, dtypes[1])
        return reference.linear_weight_grad(output_grad, x, topology).to(dtypes[0]), bias
    output_grad, x = readable(output_grad), readable(x)
    out, bias = _buffers(output_grad, (blocks, block, block), dtypes)

    def describe() -> ProblemKey:
        return ProblemKey(
            "weight_grad" if bias is None else "weight_and_bias_grad",
            output_grad.shape[1],
            x.shape[1],
            block,
            str(x.dtype),
            precision,
            density_bucket(blocks, rows, cols),
            token_bucket(x.shape[0]),
        )

    config = TUNER.choose(
        signature,
        describe,
        weight_grad_configs(block, x.itemsize, precision, split_choices(blocks)),
        lambda candidate: launch_weight_grad(candidate, output_grad, x, out, topology, bias),
    )
    prepared = launch_weight_grad(config, output_grad, x, out, topology, bias)
    if prepared is not None and TUNER.remembers(signature):
        _PREPARED[signature] = prepared
    return out, bias


def launch_weight_grad(
    config: LaunchConfig,
    output_grad: Tensor,
    x: Tensor,
    out: Tensor,
    topology: BlockTopology,
    bias: Tensor | None = None,
) -> PreparedWeightGrad | None:
    """Fill ``out [nnz, block, block]`` from contiguous ``output_grad [tokens, out]`` and ``x [tokens, in]``.

    ``bias [out]``, if given, gets the column sums of ``output_grad``: within the same launch where block rows own the
    packs of the gather kernel, so that each tile of ``output_grad`` is at hand, else by a launch of its own.
    Gives the same launches for another problem of the same shapes; None where they cannot be repeated.
    """
    fuses_bias = bias is not None and config.kernel == "gather" and not config.by_input
    if bias is not None and not fuses_bias:
        launch_bias_grad(output_grad, bias)
    if config.kernel == "dense":
        out.copy_(reference.linear_weight_grad(output_grad, x, topology))
        return None
    owners = owners_of(topology, output_grad, x, config)
    tokens_per_split = ceil_div(ceil_div(x.shape[0], config.splits), config.depth) * config.depth
    splits = ceil_div(x.shape[0], tokens_per_split)
    parts = split_buffer(out, splits)
    if config.kernel == "gather":
        bias_parts = split_buffer(bias, splits) if bias is not None and fuses_bias else None
        prepared = _launch_gather(config, owners, parts, out.shape[0], tokens_per_split, bias_parts)
    else:
        bias_parts, start = None, _launch_transposed if config.kernel == "transposed" else _launch_descriptor
        prepared = start(config, owners, parts, out.shape[0], tokens_per_split)
    total = add_splits(parts, out) if splits > 1 else None
    bias_total = add_splits(bias_parts, bias) if splits > 1 and bias is not None and bias_parts is not None else None
    if prepared is None or (splits > 1 and (total is None or (fuses_bias and bias_total is None))):
        return None
    return PreparedWeightGrad(config, splits, fuses_bias, prepared, total, bias_total)


def split_buffer(out: Tensor, splits: int) -> Tensor:
    """Where programs leave their parts: ``out`` itself, or float32 ``[splits, *out.shape]``."""
    return out if splits == 1 else out.new_empty((splits, *out.shape), dtype=torch.float32)


def pack_count(blocks: int, owners: int, pack: int) -> int:
    """The most packs that ``blocks`` in ``owners`` lists can need: the grid must not wait for the true number."""
    return min(blocks, (blocks + owners * (pack - 1)) // pack)


def add_splits(parts: Tensor, out: Tensor) -> PreparedLaunch | None:
    """``out`` is the sum of ``parts [splits, *out.shape]``."""
    group = min(next_power_of_two(parts.shape[0]), SUMMED_VALUES // SUM_WIDTHS[0])
    width = min(SUMMED_VALUES // group, SUM_WIDTHS[1])
    return launch(
        sum_splits_kernel, ceil_div(out.numel(), width), (parts, out), (out.numel(), parts.shape[0]),
        width=width, group=group, num_warps=4,
    )  # fmt: skip


def _launch_gather(
    config: LaunchConfig,
    owners: Owners,
    parts: Tensor,
    blocks: int,
    tokens_per_split: int,
    bias_parts: Tensor | None,
) -> PreparedLaunch | None:
    shared, gathered, has_bias = owners.shared, owners.gathered, bias_parts is not None
    works = pack_count(blocks, owners.count, config.pack)
    if has_bias:  # an owner without blocks has a pack too, for its bias
        works = blocks // config.pack + owners.count
    splits = ceil_div(shared.shape[0], tokens_per_split)
    return launch(
        weight_grad_gather_kernel, works * splits,
        (*owners.operands(parts), parts if bias_parts is None else bias_parts),
        (owners.count, works, blocks, shared.shape[0], tokens_per_split, shared.shape[1], gathered.shape[1]),
        block=parts.shape[-1], depth=config.depth, pack=config.pack, owner_span=next_power_of_two(owners.count),
        shared_is_input=config.by_input, wide=config.swap, norms=False, has_bias=has_bias,
        precision=dot_precision(shared.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def _launch_transposed(
    config: LaunchConfig, owners: Owners, parts: Tensor, blocks: int, tokens_per_split: int
) -> PreparedLaunch | None:
    works, shared = pack_count(blocks, owners.count, config.pack), owners.shared
    splits = ceil_div(shared.shape[0], tokens_per_split)
    return launch(
        weight_grad_transposed_kernel, works * splits, owners.operands(parts),
        (
            owners.count, works, blocks, shared.shape[0], tokens_per_split, shared.shape[1], owners.gathered.shape[1],
        ),
        block=parts.shape[-1], depth=config.depth, pack=config.pack, owner_span=next_power_of_two(owners.count),
        shared_is_input=config.by_input, norms=False, precision=dot_precision(shared.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def _launch_descriptor(
    config: LaunchConfig, owners: Owners, parts: Tensor, blocks: int, tokens_per_split: int
) -> PreparedLaunch | None:
    works = pack_count(blocks, owners.count, config.pack)
    tile = [config.depth, parts.shape[-1]]
    shared, gathered, *rest = owners.operands(parts)
    splits = ceil_div(shared.shape[0], tokens_per_split)
    return launch(
        weight_grad_descriptor_kernel, works * splits, (Tiled(shared, tile), Tiled(gathered, tile), *rest),
        (owners.count, works, blocks, gathered.shape[1], shared.shape[0], tokens_per_split),
        block=parts.shape[-1], depth=config.depth, pack=config.pack, owner_span=next_power_of_two(owners.count),
        shared_is_input=config.by_input, precision=dot_precision(shared.dtype),
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
