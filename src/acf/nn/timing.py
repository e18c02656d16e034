"""Measuring, on this machine, which layers of a model are faster block-sparse than dense."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.block_spec import BlockSparsity
from acf.nn.fused_experts import unfused_experts
from acf.nn.kind import LayerKind
from acf.nn.kinds import dense_kind_of
from acf.nn.replace import FilterFn
from acf.nn.separate_attention import separated_attention
from acf.nn.sparsify_blocks import choose_layers, sparsify_blocks
from acf.ops.observe import observed_capture

REPLAYS = 20
"""Replays of a captured step that are timed together, because synchronising takes longer than a short replay."""


@dataclass(frozen=True)
class LayerTiming:
    """Best seconds of one layer's forward and both gradients, dense and sparse; or why it was not measured.

    ``spread`` is how much slower the median run was than the best, as a share; the larger of dense and sparse.
    """

    name: str
    layer: str
    input_shape: tuple[int, ...]
    dense_seconds: float | None = None
    sparse_seconds: float | None = None
    reason: str = ""
    spread: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as fast the sparse layer is; None if it was not measured."""
        if self.dense_seconds is None or self.sparse_seconds is None:
            return None
        return self.dense_seconds / self.sparse_seconds

    @property
    def is_within_spread(self) -> bool:
        """Whether the difference of dense and sparse is no larger than that of two runs of one of them."""
        return self.ratio is not None and max(self.ratio, 1 / self.ratio) - 1 <= (self.spread or 0.0)

    @property
    def pays(self) -> bool:
        """Whether the sparse layer is faster here."""
        return self.ratio is not None and self.ratio > 1.0


def time_layers(
    model: nn.Module,
    example: Any,
    spec: BlockSparsity,
    rounds: int = 7,
    cuda_graphs: bool = False,
    *,
    on_progress: Callable[[str, float], None] = lambda layer, share: None,
) -> list[LayerTiming]:
    """Time every linear and convolution layer of ``model`` as ``example`` reaches it, dense and sparsified by ``spec``.

    The projections of attention are linear layers here. ``example`` is the model's input, or a tuple of its inputs.
    Dense and sparse take turns, so a busy machine disturbs both alike. The model is left as it is. On a GPU a small
    layer takes the host longer to launch than the device to compute; ``cuda_graphs`` times layers as they run where the
    whole step is captured in a graph, by ``torch.compile(mode="reduce-overhead")`` or by hand, and the host no longer
    counts. ``on_progress`` is called before every layer with its name and the share of modules done.
    """
    with separated_attention(model), unfused_experts(model):
        chosen, left_dense = choose_layers(model, spec, None)
        inputs = example_inputs(model, example)
        modules = list(model.named_modules())
    if cuda_graphs and not all(x.is_cuda for x in inputs.values()):
        raise SparsityError("cuda_graphs needs the model and its example on a GPU; move both there, or leave it out")
    timings = []
    for place, (name, module) in enumerate(modules):
        on_progress(name, place / len(modules))
        kind = dense_kind_of(module)
        if kind is None:
            continue
        x = inputs.get(name)
        reason = left_dense.get(name, "") or ("" if x is not None else "the example does not reach it")
        if reason or x is None:
            shape = () if x is None else tuple(x.shape)
            timings.append(LayerTiming(name, _describe(module, kind), shape, reason=reason))
        else:
            unmeasured = LayerTiming(name, _describe(module, kind), tuple(x.shape))
            timings.append(_time_layer(unmeasured, chosen[name][0], x, spec, rounds, cuda_graphs))
    return timings


def faster_layers(model: nn.Module, example: Any, spec: BlockSparsity, cuda_graphs: bool = False) -> FilterFn:
    """A ``filter_fn`` for `acf.sparsify_` that takes the layers which are faster sparse on this machine.

    ``cuda_graphs`` as in `time_layers`: whether the training step will be captured in a CUDA graph.

    >>> model = nn.Sequential(nn.Linear(64, 64))
    >>> takes = faster_layers(model, torch.randn(8, 64), BlockSparsity(0.9, block=16))
    >>> takes(model[0], "0") in (True, False)
    True
    """
    timings = time_layers(model, example, spec, cuda_graphs=cuda_graphs)
    paying = {timing.name for timing in timings if timing.pays}
    return lambda module, name: name in paying


def example_inputs(model: nn.Module, example: Any) -> dict[str, Tensor]:
    """A random tensor like the one that reaches each layer when the model is called with ``example``."""
    inputs: dict[str, Tensor] = {}

    def remember(name: str) -> Callable[..., None]:
        def before_forward(module: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
            x = args[0] if args else next(iter(named.values()))
            inputs.setdefault(name, torch.randn_like(x))

        return before_forward

    layers = [(name, module) for name, module in model.named_modules() if dense_kind_of(module) is not None]
    handles = [module.register_forward_pre_hook(remember(name), with_kwargs=True) for name, module in layers]
    try:
        with torch.no_grad():
            model(*example) if isinstance(example, tuple) else model(example)
    finally:
        for handle in handles:
            handle.remove()
    return inputs


def _time_layer(
    unmeasured: LayerTiming, module: nn.Module, x: Tensor, spec: BlockSparsity, rounds: int, cuda_graphs: bool
) -> LayerTiming:
    dense = nn.Sequential(copy.deepcopy(module))
    sparse = nn.Sequential(copy.deepcopy(module))
    try:
        sparsify_blocks(sparse, replace(spec, init="sparse"), None)  # what it will be, not what it starts as
    except SparsityError as error:
        return replace(unmeasured, reason=str(error))
    steps = [captured_step(layer_step(layer, x)) if cuda_graphs else layer_step(layer, x) for layer in (dense, sparse)]
    runs: list[list[float]] = [[], []]
    for measured in range(rounds + 1):
        for seconds, step in zip(runs, steps, strict=True):
            taken = seconds_of(step, x, REPLAYS if cuda_graphs else 1)
            if measured:  # the first round builds, tunes and warms up
                seconds.append(taken)
    spread = max(median(seconds) / min(seconds) - 1 for seconds in runs)
    return replace(unmeasured, dense_seconds=min(runs[0]), sparse_seconds=min(runs[1]), spread=spread)


def layer_step(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    """One forward and backward pass, with the gradients of the input and of every parameter that takes one."""
    leaves = [x.detach().requires_grad_(), *(weight for weight in layer.parameters() if weight.requires_grad)]

    def step() -> object:
        y = layer(leaves[0])
        return torch.autograd.grad(y, leaves, torch.ones_like(y))

    return step


def captured_step(step: Callable[[], object]) -> Callable[[], object]:
    """``step`` as the replay of a CUDA graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # builds, tunes and warms up, which a capture must not see
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with observed_capture(), torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_of(step: Callable[[], object], x: Tensor, calls: int) -> float:
    """Seconds of one call, as the mean of ``calls`` in a row."""
    _synchronize(x)
    start = time.perf_counter()
    for _ in range(calls):
        step()
    _synchronize(x)
    return (time.perf_counter() - start) / calls


def step_seconds(model: nn.Module, example: Any, rounds: int = 7, cuda_graphs: bool = False) -> float:
    """Best seconds of forward and backward of the whole ``model``; with ``cuda_graphs`` compiled and replayed."""
    inputs = example if isinstance(example, tuple) else (example,)
    call = torch.compile(model) if cuda_graphs else model
    weights = [weight for weight in model.parameters() if weight.requires_grad]

    def step() -> object:
        y = call(*inputs)
        loss = y if y.dim() == 0 else y.float().square().mean()
        return torch.autograd.grad(loss, weights, allow_unused=True)

    run = captured_step(step) if cuda_graphs else step
    run()
    return min(seconds_of(run, inputs[0], REPLAYS if cuda_graphs else 1) for _ in range(rounds))


def _synchronize(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _describe(module: nn.Module, kind: LayerKind) -> str:
    outputs, inputs, *kernel = kind.weight(module).shape
    stacked = kind.stacked(module)
    if stacked > 1:
        return f"linear {inputs} to {outputs // stacked}, {stacked} experts"
    if not kernel:
        return f"linear {inputs} to {outputs}"
    return f"conv {inputs} to {outputs}, {'x'.join(str(size) for size in kernel)}"
