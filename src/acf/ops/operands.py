"""Refusing operands of products that no kernel could read.

Kernels follow sizes and pointers that they are given: one that met a narrower input, a shorter bias or fewer blocks
than the topology says would read memory that is not its own. Only shapes and kinds are compared, which never waits for
a device; what the indices of a topology say is checked where it is built, and by the CPU kernels. The methods that are
called on every product are those that cost the interpreter least: for a small layer its time counts.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from acf.errors import ArgumentError, SparsityError, TopologyError, require_kind
from acf.ops.activation import ACTIVATIONS
from acf.sparse import BlockLayout, BlockTopology
from acf.sparse.topology import check_indices, check_inside, check_pairs


def check_linear(x: Tensor, weight: Tensor, topology: BlockTopology, bias: Tensor | None) -> None:
    """Refuse what is no layer ``[out, in]``, and an ``x`` that is not ``[..., in]``."""
    check_operands(x, weight, 1, 3)
    check_layer(weight, topology, bias)
    inputs = (topology.col_offsets.numel() - 1) * weight.size(2)
    if x.size(-1) != inputs:
        raise SparsityError(
            f"x has shape {list(x.shape)}, and the layer takes {inputs} features; pass [..., in] as the weight has them"
        )


def check_layer(weight: Tensor, topology: BlockTopology, bias: Tensor | None, outputs: int | None = None) -> None:
    """Refuse a weight that is not packed by the topology, and a bias without a value for each of ``outputs``.

    Without ``outputs`` they are the rows of the matrix.
    """
    if not isinstance(topology, BlockTopology):
        require_kind(topology, BlockTopology, "topology", "pass a BlockTopology, as BlockTopology.build makes it")
    if not isinstance(weight, Tensor) or weight.dim() != 3:
        require_kind(weight, Tensor, "weight", "pass a torch.Tensor [blocks, height, width]")
        raise SparsityError(f"weight has shape {list(weight.shape)}; pass packed blocks as [blocks, height, width]")
    check_block_count(weight, topology)
    if bias is None:
        return
    if not isinstance(bias, Tensor):
        require_kind(bias, Tensor, "bias", "pass a torch.Tensor, or None")
    outputs = (topology.row_offsets.numel() - 1) * weight.size(1) if outputs is None else outputs
    if bias.dim() != 1 or bias.size(0) != outputs:
        raise ArgumentError(f"bias has shape {list(bias.shape)}; pass one value for each of {outputs} output channels")


def check_block_count(weight: Tensor, topology: BlockTopology) -> None:
    """Refuse packed blocks that are not those of the topology."""
    if weight.size(0) != topology.block_rows.numel():
        raise TopologyError(
            f"a weight of {weight.shape[0]} packed blocks does not fit a topology of {topology.block_rows.shape[0]}; "
            "pass the topology that it was packed with"
        )


def check_operands(first: Tensor, second: Tensor, first_dims: int, second_dims: int) -> None:
    """Refuse what is no tensor, has too few dimensions, or is of integers, to which a weight would be cast."""
    are_tensors = isinstance(first, Tensor) and isinstance(second, Tensor)
    if are_tensors and first.dim() >= first_dims and second.dim() >= second_dims:
        check_fractions(first)
        return
    for each in (first, second):
        require_kind(each, Tensor, "an operand", "pass a torch.Tensor")
    raise SparsityError(
        f"operands of shapes {list(first.shape)} and {list(second.shape)} cannot be multiplied: they need {first_dims} "
        f"and {second_dims} dimensions; pass [..., in] to a linear layer, [batch, in, h, w] to a convolution, and "
        "packed weights as [blocks, height, width]"
    )


def check_fractions(operand: Tensor) -> None:
    """Refuse integers, to which a weight would be cast."""
    if not (operand.is_floating_point() or operand.is_complex()):
        raise ArgumentError(
            f"an operand is {str(operand.dtype).removeprefix('torch.')}, and a weight that is cast to it loses its "
            "fractions; pass floating-point values, for example x.float()"
        )


def check_activation(name: str) -> None:
    """Refuse an activation that products cannot take in."""
    if not (isinstance(name, str) and name in ACTIVATIONS):
        raise ArgumentError(f"activation is {name!r:.60}; use one of {', '.join(ACTIVATIONS)}")


def check_candidates(rows: Tensor, cols: Tensor, matrix: tuple[int, int], block_shape: Sequence[int]) -> None:
    """Refuse what are no places of blocks of a ``matrix`` ``(rows, cols)``; on a GPU only their kind and number.

    There, to read their values is to wait for the device.
    """
    check_indices(rows, "candidate_rows")
    check_indices(cols, "candidate_cols")
    if len(block_shape) != 2:
        raise ArgumentError(f"block_shape is {tuple(block_shape)}; pass height and width of a block")
    layout = BlockLayout(*matrix, *block_shape)
    check_pairs(rows, cols)
    if rows.device.type == "cpu" and not torch.compiler.is_compiling():
        check_inside(layout, rows, cols)


def check_tokens(output_grad: Tensor, x: Tensor) -> None:
    """Refuse operands of a weight gradient that are not of the same tokens or images."""
    if output_grad.shape[0] != x.shape[0]:
        raise SparsityError(
            f"an output gradient of {output_grad.shape[0]} tokens or images and an input of {x.shape[0]} cannot be "
            "multiplied; pass those of one pass"
        )
