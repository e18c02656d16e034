"""Measuring, on this machine, which layers of a model are faster block-sparse than dense."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.block import choose_layers, sparsify_blocks
from acf.nn.dense import is_dense_layer, weight_of
from acf.nn.replace import FilterFn
from acf.nn.spec import BlockSparsity


@dataclass(frozen=True)
class LayerTiming:
    """Best seconds of one layer's forward and both gradients, dense and sparse; or why it was not measured."""

    name: str
    layer: str
    input_shape: tuple[int, ...]
    dense_seconds: float | None = None
    sparse_seconds: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as fast the sparse layer is; None if it was not measured."""
        if self.dense_seconds is None or self.sparse_seconds is None:
            return None
        return self.dense_seconds / self.sparse_seconds

    @property
    def pays(self) -> bool:
        """Whether the sparse layer is faster here."""
        return self.ratio is not None and self.ratio > 1.0


def time_layers(model: nn.Module, example: Any, spec: BlockSparsity, rounds: int = 7) -> list[LayerTiming]:
    """Time every linear and convolution layer of ``model`` as ``example`` reaches it, dense and sparsified by ``spec``.

    ``example`` is the model's input, or a tuple of its inputs. Dense and sparse take turns, so a busy machine
    disturbs both alike. The model is left as it is.
    """
    chosen, left_dense = choose_layers(model, spec, None)
    inputs = _inputs_of(model, example)
    timings = []
    for name, module in model.named_modules():
        if not is_dense_layer(module):
            continue
        x = inputs.get(name)
        reason = left_dense.get(name, "") or ("" if x is not None else "the example does not reach it")
        if reason or x is None:
            shape = () if x is None else tuple(x.shape)
            timings.append(LayerTiming(name, _describe(module), shape, reason=reason))
        else:
            timings.append(_time_layer(name, chosen[name], x, spec, rounds))
    return timings


def faster_layers(model: nn.Module, example: Any, spec: BlockSparsity) -> FilterFn:
    """A ``filter_fn`` for `acf.sparsify_` that takes the layers which are faster sparse on this machine.

    >>> model = nn.Sequential(nn.Linear(64, 64))
    >>> takes = faster_layers(model, torch.randn(8, 64), BlockSparsity(0.9, block=16))
    >>> takes(model[0], "0") in (True, False)
    True
    """
    paying = {timing.name for timing in time_layers(model, example, spec) if timing.pays}
    return lambda module, name: name in paying


def _inputs_of(model: nn.Module, example: Any) -> dict[str, Tensor]:
    """A random tensor like the one that reaches each layer when the model is called with ``example``."""
    inputs: dict[str, Tensor] = {}

    def remember(name: str) -> Callable[..., None]:
        def before_forward(module: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
            x = args[0] if args else next(iter(named.values()))
            inputs.setdefault(name, torch.randn_like(x))

        return before_forward

    layers = [(name, module) for name, module in model.named_modules() if is_dense_layer(module)]
    handles = [module.register_forward_pre_hook(remember(name), with_kwargs=True) for name, module in layers]
    try:
        with torch.no_grad():
            model(*example) if isinstance(example, tuple) else model(example)
    finally:
        for handle in handles:
            handle.remove()
    return inputs


def _time_layer(name: str, module: nn.Module, x: Tensor, spec: BlockSparsity, rounds: int) -> LayerTiming:
    dense = nn.Sequential(copy.deepcopy(module))
    sparse = nn.Sequential(copy.deepcopy(module))
    try:
        sparsify_blocks(sparse, replace(spec, init="sparse"), None)  # what it will be, not what it starts as
    except SparsityError as error:
        return LayerTiming(name, _describe(module), tuple(x.shape), reason=str(error))
    best = [float("inf"), float("inf")]
    for measured in range(rounds + 1):
        for index, layer in enumerate((dense, sparse)):
            seconds = _step_seconds(layer, x.detach().requires_grad_())
            if measured:  # the first round builds, tunes and warms up
                best[index] = min(best[index], seconds)
    return LayerTiming(name, _describe(module), tuple(x.shape), dense_seconds=best[0], sparse_seconds=best[1])


def _step_seconds(layer: nn.Module, x: Tensor) -> float:
    """Seconds of one forward and backward pass."""
    _synchronize(x)
    start = time.perf_counter()
    y = layer(x)
    torch.autograd.backward(y, torch.ones_like(y))
    _synchronize(x)
    return time.perf_counter() - start


def _synchronize(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def _describe(module: nn.Module) -> str:
    outputs, inputs, *kernel = weight_of(module).shape
    if not kernel:
        return f"linear {inputs} to {outputs}"
    return f"conv {inputs} to {outputs}, {'x'.join(str(size) for size in kernel)}"
