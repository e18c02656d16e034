"""The products of a mixture of experts one expert at a time: in plain torch, or with other products of one matrix.

With the products of `reference` these functions define what the grouped ops compute. The CPU runs them with its own
kernels. Everywhere ``x`` and ``output_grad`` hold tokens sorted by expert: the rows ``offsets[e]`` to
``offsets[e + 1]`` belong to expert ``e``. Rows past the last offset belong to none: their products are zero.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from acf.errors import TopologyError
from acf.ops.reference import grid_cols, grid_rows
from acf.sparse import BlockTopology

Product = Callable[[Tensor, Tensor, BlockTopology], Tensor]
"""A product of one matrix: two operands and the topology."""

Norms = Callable[[Tensor, Tensor, Tensor, Tensor, tuple[int, int]], Tensor]
"""Gradient norms of one matrix: output gradient, input, block rows, block columns, block shape."""


class ExpertPart(NamedTuple):
    """One expert: its rows of the sorted tokens, its slots of the packed weight, and the topology of these."""

    tokens: slice
    slots: Tensor
    topology: BlockTopology


def rows_per_expert(topology: BlockTopology, offsets: Tensor) -> int:
    """Block rows of each expert's matrix."""
    return grid_rows(topology) // expert_count(offsets)


def cols_per_expert(topology: BlockTopology, offsets: Tensor) -> int:
    """Block columns of each expert's matrix."""
    return grid_cols(topology) // expert_count(offsets)


def expert_count(offsets: Tensor) -> int:
    """Number of experts."""
    return offsets.shape[0] - 1


def token_bounds(offsets: Tensor, tokens: int) -> list[int]:
    """The offsets on the host; refused where they are not 0 and then ascending up to ``tokens``."""
    bounds: list[int] = offsets.tolist()
    if bounds[0] != 0 or bounds != sorted(bounds) or bounds[-1] > tokens:
        raise TopologyError(
            f"token offsets {bounds} do not ascend from 0 to at most {tokens} tokens; "
            "sort the tokens by expert and give the first row of each expert, then the number of rows"
        )
    return bounds


def expert_parts(topology: BlockTopology, offsets: Tensor, tokens: int) -> Iterator[ExpertPart]:
    """The experts that have tokens and blocks, in ascending order."""
    bounds, rows, cols = (
        token_bounds(offsets, tokens),
        rows_per_expert(topology, offsets),
        cols_per_expert(topology, offsets),
    )
    place = torch.empty_like(topology.row_slots)  # of each slot in the order of rows
    place[topology.row_slots.long()] = torch.arange(place.numel(), dtype=place.dtype, device=place.device)
    starts = topology.row_offsets[::rows].tolist()
    for expert, ((first, last), (start, end)) in enumerate(zip(pairwise(bounds), pairwise(starts), strict=True)):
        if first == last or start == end:
            continue
        slots = topology.row_slots[start:end].long()
        col_offsets = topology.col_offsets[expert * cols : (expert + 1) * cols + 1]
        part = BlockTopology(
            block_rows=topology.block_rows[slots] - expert * rows,
            block_cols=topology.block_cols[slots],
            row_offsets=topology.row_offsets[expert * rows : (expert + 1) * rows + 1] - start,
            row_slots=torch.arange(end - start, dtype=place.dtype, device=place.device),
            col_offsets=col_offsets - start,
            col_slots=place[topology.col_slots[start:end].long()] - start,
        )
        yield ExpertPart(slice(first, last), slots, part)


def linear(x: Tensor, weight: Tensor, topology: BlockTopology, offsets: Tensor, product: Product) -> Tensor:
    """``x [tokens, in]`` times the transposed weight of each token's expert: ``[tokens, out]``."""
    y = x.new_zeros(x.shape[0], rows_per_expert(topology, offsets) * weight.shape[1])
    for part in expert_parts(topology, offsets, x.shape[0]):
        y[part.tokens] = product(x[part.tokens], weight[part.slots], part.topology)
    return y


def input_grad(
    output_grad: Tensor, weight: Tensor, topology: BlockTopology, offsets: Tensor, product: Product
) -> Tensor:
    """``output_grad [tokens, out]`` times the weight of each token's expert: ``[tokens, in]``."""
    gradient = output_grad.new_zeros(output_grad.shape[0], cols_per_expert(topology, offsets) * weight.shape[2])
    for part in expert_parts(topology, offsets, output_grad.shape[0]):
        gradient[part.tokens] = product(output_grad[part.tokens], weight[part.slots], part.topology)
    return gradient


def weight_grad(output_grad: Tensor, x: Tensor, topology: BlockTopology, offsets: Tensor, product: Product) -> Tensor:
    """The present blocks of every expert's gradient: ``[nnz, block_height, block_width]``."""
    height = output_grad.shape[1] // rows_per_expert(topology, offsets)
    width = x.shape[1] // cols_per_expert(topology, offsets)
    gradient = x.new_zeros(topology.block_rows.numel(), height, width)
    for part in expert_parts(topology, offsets, x.shape[0]):
        gradient[part.slots] = product(output_grad[part.tokens], x[part.tokens], part.topology)
    return gradient


def gradient_norms(
    output_grad: Tensor,
    x: Tensor,
    candidates: tuple[Tensor, Tensor],
    offsets: Tensor,
    block_shape: tuple[int, int],
    norms_of: Norms,
) -> Tensor:
    """Frobenius norms of gradient blocks at ``candidates`` (rows, columns) of the stacked grid, float32."""
    rows, cols = candidates
    height = output_grad.shape[1] // block_shape[0]
    norms = torch.zeros(rows.numel(), dtype=torch.float32, device=x.device)
    experts = torch.div(rows, height, rounding_mode="floor")
    for expert, (first, last) in enumerate(pairwise(token_bounds(offsets, x.shape[0]))):
        wanted = torch.nonzero(experts == expert).flatten()
        if first < last and wanted.numel():
            own = rows[wanted] - expert * height, cols[wanted]
            norms[wanted] = norms_of(output_grad[first:last], x[first:last], *own, block_shape)
    return norms
