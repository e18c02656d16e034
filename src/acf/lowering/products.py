"""Stage 1: a traced operation as matrix products over zero patterns."""

from collections.abc import Iterator

import numpy as np

from acf.lowering.convolutions import CONV_PRODUCTS
from acf.lowering.gemm import Gemm
from acf.trace import Trace, TracedConv, TracedOp
from acf.trace.bits import BoolArray


def matrix_products(trace: Trace, op: TracedOp) -> "MatrixProducts":
    """The matrix products of ``op`` in order: one for a linear layer, several for groups, strides and batches."""
    return MatrixProducts(trace, op)


def dense_macs(trace: Trace) -> int:
    """Multiply-accumulates of the training step if nothing were skipped."""
    return sum(gemm.dense_macs for op in trace.ops for gemm in matrix_products(trace, op))


def effectual_macs(trace: Trace) -> int:
    """Multiply-accumulates of kept outputs with both operands non-zero."""
    return sum(gemm.effectual_macs() for op in trace.ops for gemm in matrix_products(trace, op))


class KeptProducts:
    """`matrix_products` for many simulations of one trace: products are built once, with what is counted on them.

    Those that would take more than ``limit_bytes`` in all are built anew each time.
    """

    def __init__(self, limit_bytes: int = 1 << 30) -> None:
        self.free_bytes = limit_bytes
        self._kept: dict[int, tuple[TracedOp, list[Gemm]]] = {}

    def __call__(self, trace: Trace, op: TracedOp) -> "MatrixProducts | list[Gemm]":
        """The products of ``op``, which is one of ``trace``."""
        if id(op) in self._kept:
            return self._kept[id(op)][1]
        products = MatrixProducts(trace, op)
        if self.free_bytes <= 0:
            return products
        built = list(products)
        different = {id(gemm): gemm for gemm in built}.values()
        self.free_bytes -= sum(gemm.left.words.nbytes + gemm.right.words.nbytes for gemm in different)
        if self.free_bytes > 0:
            self._kept[id(op)] = op, built  # the operation too, so that its id stays its own
        return built


class MatrixProducts:
    """The products of one operation: ``len`` builds none of them, an iteration holds one im2col matrix at a time."""

    def __init__(self, trace: Trace, op: TracedOp) -> None:
        self._op, self._tensors = op, trace.tensors

    def __len__(self) -> int:
        op = self._op
        if op.conv is not None:
            return op.conv.groups * len(CONV_PRODUCTS[op.phase](op.conv))
        return self._tensors[op.a].shape[0] if op.batched else 1

    def __iter__(self) -> Iterator[Gemm]:
        op = self._op
        a, b = (self._tensors[key].to_bool() for key in op.operands)
        needed = self._tensors[op.needed].to_bool() if op.needed else None
        if op.conv is not None:
            yield from _conv_products(op, op.conv, (a, b), needed)
        elif op.batched:
            yield from _batch_products(op, a, b)
        else:
            yield _matrix_product(op, a, b, needed)


def _batch_products(op: TracedOp, a: BoolArray, b: BoolArray) -> Iterator[Gemm]:
    """One product for every index; neighbours of the same zero patterns share one object and what it has counted."""
    last: tuple[BoolArray, BoolArray, Gemm] | None = None
    for a_matrix, b_matrix in zip(a, b, strict=True):
        if last is None or not (np.array_equal(a_matrix, last[0]) and np.array_equal(b_matrix, last[1])):
            last = a_matrix, b_matrix, _matrix_product(op, a_matrix, b_matrix, None)
        yield last[2]


def _matrix_product(op: TracedOp, a: BoolArray, b: BoolArray, needed: BoolArray | None) -> Gemm:
    a, b = a.T if op.transpose_a else a, b.T if op.transpose_b else b
    return Gemm(a, b, needed, op.phase, transposed=(op.transpose_a, not op.transpose_b), weighted=op.weighted)


def _conv_products(
    op: TracedOp, conv: TracedConv, operands: tuple[BoolArray, BoolArray], needed: BoolArray | None
) -> Iterator[Gemm]:
    """The products of every group in turn; groups split channels of feature maps and output channels of weights."""
    builders = CONV_PRODUCTS[op.phase](conv)
    b_axis = 1 if op.phase == "weight_grad" else 0
    for group in range(conv.groups):
        a, b = (_group_part(array, group, conv.groups, axis) for array, axis in zip(operands, (1, b_axis), strict=True))
        kept = None if needed is None else _group_part(needed, group, conv.groups, 0)
        yield from (build(a, b, kept) for build in builders)


def _group_part(array: BoolArray, group: int, groups: int, axis: int) -> BoolArray:
    return np.split(array, groups, axis=axis)[group] if groups > 1 else array
