"""Recording vector work while a model runs: calls of torch's functions that are no products, and their gradients."""

from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acf.trace.recomputation import in_backward
from acf.trace.trace import Trace
from acf.trace.vector_op import VectorOp, windows_per_value

VECTOR_FUNCTIONS: dict[Any, str] = {
    **dict.fromkeys((F.batch_norm, torch.batch_norm), "batch_norm"),
    **dict.fromkeys((F.layer_norm, F.group_norm, F.rms_norm, F.instance_norm), "layer_norm"),
    **dict.fromkeys((F.relu, torch.relu, Tensor.relu, F.leaky_relu, F.relu6), "relu"),
    **dict.fromkeys((F.gelu, F.silu, torch.tanh, Tensor.tanh, torch.sigmoid, Tensor.sigmoid), "gelu"),
    **dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), "softmax"),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__iadd__, Tensor.add_), "add"),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d), "pool"),
    F.cross_entropy: "cross_entropy",
}
"""Functions of torch by the kind of vector work they are; other functions of a model are not recorded."""

WINDOWED = (F.max_pool2d, torch.max_pool2d, F.avg_pool2d)
"""Poolings over windows of a given size and stride; windows of an adaptive one are taken as not overlapping."""

LOSS = "loss"
"""Name of a loss that is computed outside the model."""


class VectorRecorder:
    """Appends vector work to a trace, forward when it runs and backward when the gradient of its output arrives."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.calls: Counter[str] = Counter()

    def wants(self, function: Any, args: tuple[Any, ...], place: str | None) -> bool:
        """Whether this call is vector work: inside the model, or a loss. A sum with a broadcast is no residual."""
        kind = VECTOR_FUNCTIONS.get(function)
        if kind is None or not args or not isinstance(args[0], Tensor):
            return False
        if kind == "add":
            return place is not None and len(args) == 2 and _is_residual(*args)
        return place is not None or kind == "cross_entropy"

    def record(self, function: Any, place: str | None, values: Tensor, output: Any, windows: float = 1.0) -> Any:
        """Record a call on ``values`` that gave ``output``; returns the output. ``windows``: as in `VectorOp`."""
        kind = VECTOR_FUNCTIONS[function]
        base = place or LOSS
        call = self.calls[f"{base}.{kind}"]
        self.calls[f"{base}.{kind}"] += 1
        name = base if call == 0 else f"{base}#{call}"
        elements = values.numel()

        def append(phase: str) -> None:
            op = VectorOp(name, kind, phase, elements, len(self.trace.ops), windows=windows)
            self.trace.vector_ops.append(op)

        if not in_backward():  # activation checkpointing computes it again, which is not counted
            append("forward")
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda _: append("backward"))  # type: ignore[no-untyped-call]
        return output


def pool_windows(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> float:
    """In how many windows of the pooling ``function(*args, **named)`` a value is; 1 for any other call."""
    if function not in WINDOWED:
        return 1.0
    kernel, stride = (
        named.get(name, args[place] if len(args) > place else None)
        for place, name in ((1, "kernel_size"), (2, "stride"))
    )
    return windows_per_value(_both_axes(kernel), _both_axes(stride or kernel))  # torch's default stride is the kernel


def _both_axes(size: Any) -> tuple[int, ...]:
    """A size as torch takes it, for rows and columns."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes * (2 // len(sizes))


def _is_residual(a: Any, b: Any) -> bool:
    """Whether two activations of one shape are added, both with a gradient."""
    both = isinstance(a, Tensor) and isinstance(b, Tensor)
    return both and a.shape == b.shape and a.dim() >= 2 and a.requires_grad and b.requires_grad
