"""What a TensorDash-like kernel gains on this GPU: the products of traced steps, cuBLAS against skipped tiles."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acf.bench import OnProgress
from acf.bench.evaluation.run import STAGES
from acf.bench.evaluation.store import EvaluationStore
from acf.errors import DataError
from acf.trace import Trace, TracedConv, TracedOp

EXAMPLE_ROWS = 4096
"""A traced step has few examples; their zero patterns are repeated until a product has as many rows as this."""

TOLERANCE = 0.02
"""Largest difference from cuBLAS, over the largest element, in bfloat16."""


@dataclass(frozen=True)
class SkippedStep:
    """All products of the last traced step of ``system``: seconds with cuBLAS, with the kernel, with the faster.

    ``tiles`` is the share of tiles of the sparser operands that hold a non-zero, weighted by the work of the product.
    """

    system: str
    products: int
    tiles: float
    dense_s: float
    skipping_s: float
    faster_s: float

    @property
    def gain(self) -> float:
        """cuBLAS over the kernel."""
        return self.dense_s / self.skipping_s

    @property
    def gain_of_faster(self) -> float:
        """cuBLAS over the faster of both, product by product."""
        return self.dense_s / self.faster_s


def measure_skipping(store: EvaluationStore, on_progress: OnProgress) -> None:
    """Time the last traced step of every system that was not timed yet; needs a CUDA GPU."""
    known = {step.system for step in skipped_steps(store)}
    systems = dict.fromkeys(run.system for run in store.runs())
    wanted = [each for each in systems if each not in known and store.trace(each, STAGES[-1]).exists()]
    for number, system in enumerate(wanted):
        on_progress(f"{system}, zero-skipping kernel", number / len(wanted))
        found = _measure(system, Trace.load(store.trace(system, STAGES[-1])))
        store.put_fact("skipping", [*(asdict(each) for each in skipped_steps(store)), asdict(found)])


def skipped_steps(store: EvaluationStore) -> tuple[SkippedStep, ...]:
    """What was measured."""
    found: list[dict[str, Any]] = store.fact("skipping") or []
    return tuple(SkippedStep(**values) for values in found)


def _measure(system: str, trace: Trace) -> SkippedStep:
    from acf.bench.kernels.gpu_timing import medians
    from acf.ops.triton.skip_zeros import list_nonzero_tiles, skip_zeros_product

    dense = skipping = faster = present = work = 0.0
    count = 0
    for patterns in traced_patterns(trace):
        left, right = _values(patterns.left), _values(patterns.right)
        _check(skip_zeros_product(left, right), left @ right.T, system)
        times = medians({"dense": lambda: left @ right.T, "skipping": lambda: skip_zeros_product(left, right)}, 2)  # noqa: B023
        listed = list_nonzero_tiles(left)
        present += patterns.macs * float(listed.counts.sum()) / listed.columns.numel()
        work += patterns.macs
        dense, skipping = dense + 1e-3 * times["dense"], skipping + 1e-3 * times["skipping"]
        faster += 1e-3 * min(times.values())
        count += 1
    if not count:
        raise DataError(f"the trace of {system} holds no product; run again with --captured above 0")
    return SkippedStep(system, count, present / work, dense, skipping, faster)


@dataclass(frozen=True)
class Patterns:
    """Zero patterns of a product, bool ``left [rows, depth]`` and ``right [width, depth]``, left with more zeros."""

    left: Tensor
    right: Tensor

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the dense product."""
        return self.left.numel() * self.right.shape[0]


def traced_patterns(trace: Trace) -> Iterator[Patterns]:
    """Every product with a weight of a traced step, convolutions by im2col; those in groups are left out."""
    for op in trace.ops:
        if not op.weighted or op.batched or (op.conv is not None and op.conv.groups > 1):
            continue
        a, b = (torch.from_numpy(trace.tensors[key].to_bool()) for key in op.operands)
        left, right = _matrices(op, a, b) if op.conv is None else CONVOLUTIONS[op.phase](op.conv, a, b)
        along_depth = op.phase == "weight_grad"
        repeats = max(1, EXAMPLE_ROWS // max(1, left.shape[1] if along_depth else left.shape[0]))
        left = left.repeat(1, repeats) if along_depth else left.repeat(repeats, 1)
        right = right.repeat(1, repeats) if along_depth else right
        shares = [float(each.float().mean()) for each in (left, right)]
        yield Patterns(right, left) if shares[1] < shares[0] else Patterns(left, right)


def _matrices(op: TracedOp, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return a.T if op.transpose_a else a, b if op.transpose_b else b.T


def _windows(conv: TracedConv, x: Tensor) -> Tensor:
    """im2col of ``x [batch, channels, h, w]``: ``[pixels, taps * channels]``, channels innermost."""
    columns = F.unfold(x.float(), conv.kernel_size, conv.dilation, conv.padding, conv.stride)
    batch, channels = x.shape[:2]
    taps = columns.reshape(batch, channels, conv.taps, -1).permute(0, 3, 2, 1)
    return taps.reshape(-1, conv.taps * channels) > 0


def _pixels(gradient: Tensor) -> Tensor:
    """``[pixels, channels]``."""
    return gradient.permute(0, 2, 3, 1).flatten(0, 2)


CONVOLUTIONS: dict[str, Callable[[TracedConv, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "forward": lambda conv, x, weight: (_windows(conv, x), weight),
    "input_grad": lambda conv, gradient, weight: (_pixels(gradient), weight.T),
    "weight_grad": lambda conv, gradient, x: (_pixels(gradient).T, _windows(conv, x).T),
}
"""Both operands of a convolution's product by phase; the input gradient is scattered to pixels afterwards."""


def _values(pattern: Tensor) -> Tensor:
    """Random bfloat16 values where ``pattern`` is set, on the GPU; none of them is 0."""
    mask = pattern.cuda()
    return (torch.rand(mask.shape, device="cuda") + 0.5).masked_fill_(~mask, 0.0).to(torch.bfloat16)


def _check(found: Tensor, expected: Tensor, system: str) -> None:
    error = float((found - expected).abs().max()) / max(float(expected.abs().max()), 1e-30)
    if not error <= TOLERANCE:
        raise DataError(
            f"the zero-skipping product of {system} differs from cuBLAS by {error:.1%} of the largest element, more "
            f"than {TOLERANCE:.0%}; leave --skipping out, and report it"
        )
