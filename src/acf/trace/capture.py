"""Recording the operands of a real training step."""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn

from acf.errors import TraceError
from acf.nn import BlockSparseConv2d, BlockSparseLayer, BlockSparseLinear, NMConv2d, NMLayer, NMLinear
from acf.nn.conv import explicit_padding, geometry_of, pad_explicitly
from acf.sparse import conv_weight_to_matrix
from acf.trace.bits import BitTensor
from acf.trace.op import TracedConv, TracedOp
from acf.trace.products import ProductRecorder
from acf.trace.trace import Trace

TRACED_LAYERS = (nn.Linear, nn.Conv2d, BlockSparseLinear, BlockSparseConv2d, NMLinear, NMConv2d)


@contextmanager
def capture(model: nn.Module, label: str = "step") -> Iterator[Trace]:
    """Record every linear and 2-D convolution of ``model`` that runs inside the ``with`` block, dense or sparse.

    The trace fills while forward and backward run, and is complete when the block ends. Products that training
    does not compute are not recorded: no input gradient for a layer fed with data, no weight
    gradient for a frozen one. Products without a layer are recorded where the model calls ``matmul``, ``bmm`` or
    ``scaled_dot_product_attention``, named after the module that does; attention runs unfused meanwhile. Those inside
    ``nn.MultiheadAttention``, whose projections are no layers either, and of ``einsum`` are not seen; a model with the
    former is captured with a warning.
    """
    _warn_of_hidden_products(model)
    recorder = _Recorder(Trace([], {}, label))
    running = _RunningModules(model)
    handles = running.handles + [
        # First in line, so that the gradient seen is the one the layer gets: after a sparsifier at its output.
        module.register_forward_hook(recorder.hook(name or type(module).__name__), with_kwargs=True, prepend=True)
        for name, module in model.named_modules()
        if isinstance(module, TRACED_LAYERS)
    ]
    if len(handles) == len(running.handles):
        running.remove()
        raise TraceError(
            f"{type(model).__name__} has no linear or 2-D convolution layer to capture; pass a model that has one"
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
    hidden = [
        name or "the model" for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)
    ]
    if hidden:
        warnings.warn(
            f"{hidden[0]} is an nn.MultiheadAttention, one of {len(hidden)}; what it multiplies is not in the trace: "
            "build attention from nn.Linear and scaled_dot_product_attention to have it there",
            stacklevel=4,
        )


class _RunningModules:
    """Which module of a model runs at the moment, the innermost last."""

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
        if not self.running or isinstance(self.running[-1][1], TRACED_LAYERS):
            return None
        return self.running[-1][0]

    def remove(self) -> None:
        """Take the hooks off the model."""
        for handle in self.handles:
            handle.remove()


class _Recorder:
    """Turns layer calls into traced operations."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.calls: Counter[str] = Counter()

    def hook(self, layer_name: str) -> Any:
        def after_forward(
            module: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
        ) -> None:
            call = self.calls[layer_name]
            self.calls[layer_name] += 1
            x = args[0] if args else next(iter(named.values()))
            self.record(layer_name if call == 0 else f"{layer_name}#{call}", layer_name, module, x, output)

        return after_forward

    def record(self, name: str, layer_name: str, module: nn.Module, x: Tensor, output: Tensor) -> None:
        """Record the forward product now and the two gradient products when the output's gradient arrives."""
        conv, activation = _conv_and_activation(module, x.detach())
        activation_key, weight_key = f"{name}.activation", f"{layer_name}.weight"
        self.trace.tensors[activation_key] = BitTensor.from_array(activation)
        if weight_key not in self.trace.tensors:
            self.trace.tensors[weight_key] = BitTensor.from_array(_weight_matrix(module))
        data = () if x.requires_grad else (activation_key,)
        self.trace.ops.append(
            TracedOp(
                name,
                "forward",
                activation_key,
                weight_key,
                transpose_b=conv is None,
                conv=conv,
                external=(*data, weight_key),
            )
        )
        if output.requires_grad:
            keys = (activation_key, weight_key)
            output.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: self.record_backward(name, module, keys, conv, x, gradient)
            )

    def record_backward(
        self,
        name: str,
        module: nn.Module,
        keys: tuple[str, str],
        conv: TracedConv | None,
        x: Tensor,
        gradient: Tensor,
    ) -> None:
        """Record the gradient products that autograd is about to compute."""
        activation_key, weight_key = keys
        gradient_key = f"{name}.output_grad"
        batched = _conv_batch(gradient) if conv else gradient.reshape(-1, gradient.shape[-1])
        self.trace.tensors[gradient_key] = BitTensor.from_array(batched)
        if cast(nn.Parameter, module.weight).requires_grad:
            needed = self._needed_mask(weight_key, module)
            self.trace.ops.append(
                TracedOp(
                    name,
                    "weight_grad",
                    gradient_key,
                    activation_key,
                    transpose_a=conv is None,
                    conv=conv,
                    needed=needed,
                    external=() if x.requires_grad else (activation_key,),
                )
            )
        if x.requires_grad:
            key = self._backward_weight(weight_key, module)
            self.trace.ops.append(TracedOp(name, "input_grad", gradient_key, key, conv=conv, external=(key,)))

    def _backward_weight(self, weight_key: str, module: nn.Module) -> str:
        """An N:M layer may take the input gradient through other weights than the forward product."""
        if not isinstance(module, NMLayer) or module.masks().backward is None:
            return weight_key
        key = f"{weight_key}.backward"
        if key not in self.trace.tensors:
            self.trace.tensors[key] = BitTensor.from_array(_as_matrix(module.backward_weight()))
        return key

    def _needed_mask(self, weight_key: str, module: nn.Module) -> str | None:
        """A block-sparse layer keeps the gradient of its present blocks only."""
        if not isinstance(module, BlockSparseLayer):
            return None
        key = f"{weight_key}.present"
        if key not in self.trace.tensors:
            layout, mask = module.layout, module.mask()
            elements = mask.repeat_interleave(layout.block_height, 0).repeat_interleave(layout.block_width, 1)
            self.trace.tensors[key] = BitTensor.from_array(elements)
        return key


def _conv_and_activation(module: nn.Module, x: Tensor) -> tuple[TracedConv | None, Tensor]:
    """The geometry of a convolution and its explicitly padded ``[batch, in, h, w]`` input; or tokens ``[t, in]``."""
    if isinstance(module, nn.Linear | BlockSparseLinear | NMLinear):
        return None, x.reshape(-1, x.shape[-1])
    if isinstance(module, BlockSparseConv2d | NMConv2d):
        explicit, mode, groups, geometry = module.explicit_padding, module.padding_mode, 1, module.geometry
    else:
        dense = cast(nn.Conv2d, module)
        explicit, mode, groups, geometry = (
            explicit_padding(dense),
            dense.padding_mode,
            dense.groups,
            geometry_of(dense),
        )
    x = pad_explicitly(_conv_batch(x), explicit, mode)
    pairs = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    return TracedConv(*pairs, input_size=(x.shape[2], x.shape[3]), groups=groups), x


def _conv_batch(x: Tensor) -> Tensor:
    return x.unsqueeze(0) if x.dim() == 3 else x


def _weight_matrix(module: nn.Module) -> Tensor:
    """The weight as a dense ``[out, in]`` or ``[out, kh*kw*in]`` matrix."""
    if isinstance(module, BlockSparseLayer):
        return module.weight_matrix().detach()
    return _as_matrix(module.forward_weight() if isinstance(module, NMLayer) else cast(nn.Parameter, module.weight))


def _as_matrix(weight: Tensor) -> Tensor:
    weight = weight.detach()
    return conv_weight_to_matrix(weight) if weight.dim() == 4 else weight
