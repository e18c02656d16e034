"""`acf.capture`: recording the zero patterns of the operands of a real training step."""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from threading import Lock, get_ident
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from acf.errors import TraceError, require_kind
from acf.nn import LayerKind, SparseLayer, kind_of
from acf.ops.autotune import untuned
from acf.trace.bits import BitTensor
from acf.trace.op import ROLES, TracedConv, TracedOp
from acf.trace.products import ProductRecorder
from acf.trace.recomputation import CallsWithoutGraph, in_backward, same_bits
from acf.trace.trace import Trace
from acf.trace.vector_op import VECTOR_KINDS, VectorOp


@contextmanager
def capture(model: nn.Module, label: str = "step", optimizer: str = "adam") -> Iterator[Trace]:
    """Record every linear and convolution layer of ``model`` that runs inside the ``with`` block, dense or sparse.

    The trace fills while forward and backward run, and is complete when the block ends. A product that activation
    checkpointing computes twice is recorded once. Products that training does not compute are not recorded: no input
    gradient for a layer fed with data, no weight gradient for a frozen one. 1-D and 3-D convolutions are
    recorded as the 2-D convolution they are computed as. A transposed one is recorded as the convolution whose input
    gradient it is, so its "forward" and "input_grad" change places. Products without a layer are recorded where
    the model calls ``matmul``, ``bmm`` or ``scaled_dot_product_attention``, named after the module that does; attention
    runs unfused meanwhile. Those inside ``nn.MultiheadAttention``, whose projections are no layers either, and of
    ``einsum`` are not seen; a model with the former is captured with a warning.

    Vector work between the products is recorded, too: the functions of `acf.trace.vector_recorder.VECTOR_FUNCTIONS`
    that the model calls, and for every weight gradient an update by ``optimizer``, "adam" or "sgd".
    """
    if "update" not in VECTOR_KINDS.get(optimizer, ()):
        raise TraceError(f"optimizer {optimizer!r} is not adam or sgd; use the one whose state is nearest to yours")
    require_kind(model, nn.Module, "model", "pass the torch.nn.Module whose step to capture")
    with _captured_by_this_thread(model), untuned():
        yield from _captured(model, label, optimizer)


_CAPTURED_BY: "WeakKeyDictionary[nn.Module, int]" = WeakKeyDictionary()
_CAPTURED_LOCK = Lock()


@contextmanager
def _captured_by_this_thread(model: nn.Module) -> Iterator[None]:
    """Refuse a model that another thread captures: hooks of a module run in every thread that calls it."""
    own, modules = get_ident(), list(model.modules())
    with _CAPTURED_LOCK:
        if any(_CAPTURED_BY.get(module, own) != own for module in modules):
            raise TraceError(
                f"{type(model).__name__} is being captured by another thread, and both would record the calls of "
                "either; capture one after the other, or a copy.deepcopy of the model"
            )
        added = [module for module in modules if module not in _CAPTURED_BY]
        _CAPTURED_BY.update(dict.fromkeys(added, own))
    try:
        yield
    finally:
        with _CAPTURED_LOCK:
            for module in added:
                _CAPTURED_BY.pop(module, None)


def _captured(model: nn.Module, label: str, optimizer: str) -> Iterator[Trace]:
    """The trace, with hooks on the model until the caller goes on."""
    _warn_of_hidden_products(model)
    recorder = _Recorder(Trace([], {}, label), optimizer)
    running = _RunningModules(model)
    handles = running.handles + [
        # Prepended, so that the recorded gradient is the one that reaches the layer, after a sparsifier at its output.
        module.register_forward_hook(recorder.hook(name or type(module).__name__), with_kwargs=True, prepend=True)
        for name, module in model.named_modules()
        if (kind := kind_of(module)) is not None and kind.is_traced
    ]
    if len(handles) == len(running.handles):
        running.remove()
        raise TraceError(
            f"{type(model).__name__} has no linear or convolution layer to capture; pass a model that has one"
        )
    try:
        with ProductRecorder(recorder.trace, running.place):
            yield recorder.trace
    finally:
        for handle in handles:
            handle.remove()
    if not recorder.trace.ops:
        raise TraceError("no layer ran inside the capture block; call the model and backward() inside it")


def _warn_of_hidden_products(model: nn.Module) -> None:
    untraced = [name for name, module in model.named_modules() if (kind := kind_of(module)) and not kind.is_traced]
    if untraced:
        warnings.warn(
            f"{untraced[0]} multiplies by several experts, one of {len(untraced)} such layers; a trace has products of "
            "one matrix, and theirs are not in it",
            stacklevel=5,
        )
    hidden = [
        name or "the model" for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)
    ]
    if hidden:
        warnings.warn(
            f"{hidden[0]} is an nn.MultiheadAttention, one of {len(hidden)}; what it multiplies is not in the trace: "
            "build attention from nn.Linear and scaled_dot_product_attention to have it there",
            stacklevel=5,
        )


class _RunningModules:
    """The stack of modules that run at the moment, the innermost last."""

    def __init__(self, model: nn.Module) -> None:
        self.running: list[tuple[str, nn.Module]] = []
        self.handles: list[Any] = []
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_pre_hook(self._entering(name)))
            self.handles.append(module.register_forward_hook(self._left, always_call=True))

    def _entering(self, name: str) -> Any:
        def before_forward(module: nn.Module, args: Any) -> None:
            self.running.append((name or type(module).__name__, module))

        return before_forward

    def _left(self, module: nn.Module, args: Any, output: Any) -> None:
        self.running.pop()

    def place(self) -> str | None:
        """Name of the module whose own products are to be recorded; None in a layer, which is recorded as a whole."""
        if not self.running:
            return "" if in_backward() else None  # a checkpointed function runs again outside its module
        return None if kind_of(self.running[-1][1]) is not None else self.running[-1][0]

    def remove(self) -> None:
        """Take the hooks off the model."""
        for handle in self.handles:
            handle.remove()


class _Recorder:
    """Turns layer calls into traced operations."""

    def __init__(self, trace: Trace, optimizer: str) -> None:
        self.trace, self.optimizer = trace, optimizer
        self.calls: Counter[str] = Counter()
        self.without_graph: CallsWithoutGraph[_LayerCall] = CallsWithoutGraph()

    def hook(self, layer_name: str) -> Any:
        def after_forward(
            module: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
        ) -> None:
            x = args[0] if args else next(iter(named.values()))
            if in_backward():
                self._recomputed(layer_name, x, output)
                return
            call = self.calls[layer_name]
            self.calls[layer_name] += 1
            name = layer_name if call == 0 else f"{layer_name}#{call}"
            with torch.no_grad():  # recording must not add to what a checkpoint counts as saved
                layer_call = _LayerCall(self.trace, (name, layer_name), module, x, output)
                layer_call.optimizer = self.optimizer if call == 0 else None
            layer_call.record_forward()
            if output.requires_grad:
                output.register_hook(layer_call.record_backward)  # type: ignore[no-untyped-call]
            else:
                self.without_graph.add(layer_name, layer_call)

        return after_forward

    def _recomputed(self, layer_name: str, x: Tensor, output: Tensor) -> None:
        """Let the call that had this input record the gradients, if its own output cannot."""
        layer_call = (
            self.without_graph.take(layer_name, lambda call: call.had_input(x, output))
            if output.requires_grad
            else None
        )
        if layer_call is not None:
            layer_call.enter_graph(x)
            output.register_hook(layer_call.record_backward)  # type: ignore[no-untyped-call]


class _LayerCall:
    """One call of a layer: its forward product, and its gradient products once the output's gradient arrives.

    ``names`` are that of the call and that of the layer, whose weight all its calls share in the trace. A transposed
    convolution is recorded as the convolution whose input gradient it is: "forward" and "input_grad" change places.
    """

    def __init__(self, trace: Trace, names: tuple[str, str], module: nn.Module, x: Tensor, output: Tensor) -> None:
        self.trace, self.module = trace, module
        self.name, layer_name = names
        self.optimizer: str | None = None
        self.kind = cast(LayerKind, kind_of(module))
        self.needs_input_grad = x.requires_grad
        traced = self.kind.traced_input(module, x.detach(), output.detach())
        self.conv: TracedConv | None = None
        if traced.geometry is not None:
            height, width = traced.input_size or traced.values.shape[2:]
            self.conv = TracedConv(*astuple(traced.geometry), input_size=(height, width), groups=traced.groups)
        self.activation_key, self.weight_key = f"{self.name}.activation", f"{layer_name}.weight"
        trace.tensors[self.activation_key] = BitTensor.from_array(traced.values)
        if self.weight_key not in trace.tensors:
            trace.tensors[self.weight_key] = BitTensor.from_array(self._forward_matrix())

    def had_input(self, x: Tensor, output: Tensor) -> bool:
        """Whether this call had an input of the zero pattern of ``x``."""
        values = self.kind.traced_input(self.module, x.detach(), output.detach()).values
        return same_bits(self.trace.tensors[self.activation_key], BitTensor.from_array(values))

    def enter_graph(self, x: Tensor) -> None:
        """Learn from the input of the recomputed call whether the step computes its gradient."""
        if x.requires_grad and not self.needs_input_grad:
            self.needs_input_grad = True
            forward = next(op for op in self.trace.ops if op.name == self.name and self.activation_key in op.operands)
            self.trace.ops[self.trace.ops.index(forward)] = replace(forward, external=(self.weight_key,))

    def record_forward(self) -> None:
        """Activations times weights."""
        external = (*self._external_activation(), self.weight_key)
        keys = (self.activation_key, self.weight_key)
        self._append("forward", keys, external, transpose_b=self.conv is None)

    def record_backward(self, gradient: Tensor) -> None:
        """The gradient products that autograd is about to compute."""
        key = f"{self.name}.output_grad"
        self.trace.tensors[key] = BitTensor.from_array(self.kind.traced_gradient(gradient))
        if cast(nn.Parameter, self.module.weight).requires_grad:
            mask = self._gradient_mask()
            keys = (key, self.activation_key)
            self._append("weight_grad", keys, self._external_activation(), needed=mask, transpose_a=self.conv is None)
            self._append_update(mask)
        if self.needs_input_grad:
            weight_key = self._backward_weight()
            self._append("input_grad", (key, weight_key), (weight_key,))

    def _append(self, phase: str, keys: tuple[str, str], external: tuple[str, ...], **options: Any) -> None:
        if self.kind.transposed:
            roles = ROLES[phase]
            if phase == "weight_grad":
                keys, roles = keys[::-1], roles[::-1]
            phase = {"forward": "input_grad", "input_grad": "forward"}.get(phase, phase)
            options["operand_roles"] = roles
        self.trace.ops.append(TracedOp(self.name, phase, *keys, conv=self.conv, external=external, **options))

    def _append_update(self, mask: str | None) -> None:
        """The optimizer's work on the kept weights; a layer that is called several times is updated once."""
        if self.optimizer is not None:
            kept = self.trace.tensors[self.weight_key].size if mask is None else self.trace.tensors[mask].nonzeros
            products = len(self.trace.ops)
            self.trace.vector_ops.append(VectorOp(self.name, self.optimizer, "update", kept, products))

    def _external_activation(self) -> tuple[str, ...]:
        """The activation where it is data from outside the step."""
        return () if self.needs_input_grad else (self.activation_key,)

    def _forward_matrix(self) -> Tensor:
        module = self.module
        return module.forward_matrix() if isinstance(module, SparseLayer) else self.kind.weight_matrix(module)

    def _backward_weight(self) -> str:
        """An N:M layer may take the input gradient through other weights than the forward product."""
        matrix = self.module.backward_matrix() if isinstance(self.module, SparseLayer) else None
        return self.weight_key if matrix is None else self._keep_once(f"{self.weight_key}.backward", matrix)

    def _gradient_mask(self) -> str | None:
        """A block-sparse layer computes the gradient of its present blocks only."""
        mask = self.module.gradient_mask() if isinstance(self.module, SparseLayer) else None
        return None if mask is None else self._keep_once(f"{self.weight_key}.present", mask)

    def _keep_once(self, key: str, values: Tensor) -> str:
        if key not in self.trace.tensors:
            self.trace.tensors[key] = BitTensor.from_array(values)
        return key
