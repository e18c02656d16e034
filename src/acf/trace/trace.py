"""The trace of one training step: its operations in execution order, and the zero patterns they share."""

from collections.abc import Sequence
from pathlib import Path

from acf.errors import TraceError
from acf.trace.bits import BitTensor
from acf.trace.op import Matmul, TracedOp
from acf.trace.shapes import check_shapes
from acf.trace.vector_op import VectorOp


class Trace:
    """``ops`` in execution order over ``tensors`` by name; made by `acf.capture`, `load` or `from_matmuls`.

    A tensor used by two passes is stored once. Only zero patterns, shapes and convolution geometry are kept.
    ``vector_ops`` is the work between the products, such as normalisation; empty where it was not recorded.
    """

    def __init__(
        self,
        ops: Sequence[TracedOp],
        tensors: dict[str, BitTensor],
        label: str = "trace",
        vector_ops: Sequence[VectorOp] = (),
    ) -> None:
        self.ops = list(ops)
        self.vector_ops = list(vector_ops)
        self.tensors = dict(tensors)
        self.label = label
        self._check()

    @classmethod
    def from_matmuls(cls, matmuls: Sequence[Matmul], label: str = "matmuls") -> "Trace":
        """A trace of products given as arrays: ``a [m, k]`` times ``b [k, n]``.

        >>> import numpy as np
        >>> trace = Trace.from_matmuls([Matmul("fc", "forward", a=np.eye(4), b=np.ones((4, 8)))])
        >>> [op.name for op in trace.ops], trace.tensors["0.fc.a"].density
        (['fc'], 0.25)
        """
        ops: list[TracedOp] = []
        tensors: dict[str, BitTensor] = {}
        for index, matmul in enumerate(matmuls):
            a, b = BitTensor.from_array(matmul.a), BitTensor.from_array(matmul.b)
            if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
                raise TraceError(
                    f"{matmul.name}: a {list(a.shape)} and b {list(b.shape)} do not multiply; "
                    "pass a as [m, k] and b as [k, n]"
                )
            keys = f"{index}.{matmul.name}.a", f"{index}.{matmul.name}.b"
            tensors.update(zip(keys, (a, b), strict=True))
            ops.append(TracedOp(matmul.name, matmul.phase, *keys, external=keys))
        return cls(ops, tensors, label)

    def vector_ops_after(self, products: int) -> list[VectorOp]:
        """The vector work that comes after that many products and before the next, in order."""
        return [op for op in self.vector_ops if op.after == products]

    def without_vector_work(self) -> "Trace":
        """The matrix products alone, as papers count a training step."""
        return Trace(self.ops, self.tensors, self.label)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file; an interrupted call leaves the old file or none, never half of one."""
        from acf.trace.file import write_trace

        write_trace(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read what `save` wrote. Nothing in the file is executed; a damaged or foreign file is refused."""
        from acf.trace.file import read_trace

        return read_trace(Path(path))

    def _check(self) -> None:
        for op in self.ops:
            for key in (op.a, op.b, op.needed):
                if key is not None and key not in self.tensors:
                    raise TraceError(
                        f"operation {op.name!r} names tensor {key!r}, which is not in the trace; capture the step again"
                    )
            check_shapes(op, self.tensors)
        for vector_op in self.vector_ops:
            if vector_op.after > len(self.ops):
                raise TraceError(
                    f"vector work {vector_op.name!r} comes after {vector_op.after} products, the trace has "
                    f"{len(self.ops)}; capture the step again"
                )

    def __repr__(self) -> str:
        return f"Trace({self.label!r}, {len(self.ops)} operations, {len(self.tensors)} tensors)"
