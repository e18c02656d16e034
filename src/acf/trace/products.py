"""Recording matrix products of activations that belong to no layer, such as attention's scores and contexts.

A `TorchFunctionMode` sees the calls of torch's own functions. Attention that torch would fuse is computed in its two
products instead, so that the scores, which a fused kernel never stores, can be recorded.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from acf.trace.bits import BitTensor
from acf.trace.op import TracedOp
from acf.trace.recomputation import CallsWithoutGraph, in_backward, same_bits
from acf.trace.trace import Trace
from acf.trace.vector_recorder import VectorRecorder, pool_windows

_MATMULS = frozenset({torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__})


class ProductRecorder(TorchFunctionMode):
    """Records matrix products and vector work while it is active.

    ``place()`` names the running module, or is None where products are not to be recorded.
    """

    def __init__(self, trace: Trace, place: Callable[[], str | None]) -> None:
        super().__init__()
        self.trace = trace
        self.place = place
        self.calls: Counter[str] = Counter()
        self.without_graph: CallsWithoutGraph[_Product] = CallsWithoutGraph()
        self.vector = VectorRecorder(trace)

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called for every function of torch; inside, the mode is off."""
        named = kwargs or {}
        if func is Tensor.backward and named.get("inputs") is None:
            return self._backward(args[0], **named)
        place = self.place()
        if self.vector.wants(func, args, place):
            return self.vector.record(func, place, args[0], func(*args, **named), pool_windows(func, args, named))
        if place is None:
            return func(*args, **named)
        if func is F.scaled_dot_product_attention:
            return self._attention(place, _AttentionCall(*args, **named))
        if func in _MATMULS and not named and _are_matrices(*args):
            return self._product(f"{place}.matmul", args[0], args[1])
        return func(*args, **named)

    def _backward(
        self, loss: Tensor, gradient: Tensor | None, retain_graph: bool | None, create_graph: bool, **_: Any
    ) -> None:
        """``loss.backward`` with the mode on, so that it sees what activation checkpointing computes again.

        Functions of torch run without the mode that took them over, so this calls the engine beneath them.
        """
        if gradient is None and loss.numel() != 1:
            loss.backward()  # type: ignore[no-untyped-call]  # raises: a gradient is implied for scalars only
        gradient = torch.ones_like(loss) if gradient is None else gradient
        keep_graph = create_graph if retain_graph is None else retain_graph
        with self:
            torch.autograd.Variable._execution_engine.run_backward(
                (loss,), (gradient,), keep_graph, create_graph, (), allow_unreachable=True, accumulate_grad=True
            )

    def _attention(self, place: str, call: "_AttentionCall") -> Tensor:
        """Scaled dot-product attention as two recorded products, with torch's meaning of every argument."""
        query, key, value = call.query, call.key, call.value
        if call.enable_gqa:
            key, value = (heads.repeat_interleave(query.shape[-3] // heads.shape[-3], dim=-3) for heads in (key, value))
        scale = 1 / math.sqrt(query.shape[-1]) if call.scale is None else call.scale
        scores = self._product(f"{place}.scores", query, key.transpose(-2, -1)) * scale
        if call.is_causal:
            causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~causal, -math.inf)
        if call.attn_mask is not None and call.attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~call.attn_mask, -math.inf)
        elif call.attn_mask is not None:
            scores = scores + call.attn_mask
        shares = self.vector.record(F.softmax, place, scores, scores.softmax(dim=-1))
        shares = F.dropout(shares, call.dropout_p)
        return self._product(f"{place}.context", shares, value)

    def _product(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """``a @ b``, its forward product recorded now and its gradients' when the output's gradient arrives."""
        output = torch.matmul(a, b)
        if in_backward():
            self._recomputed(name, a, b, output)
            return output
        call = self.calls[name]
        self.calls[name] += 1
        product = _Product(name if call == 0 else f"{name}#{call}", self.trace, a, b)
        product.record_forward()
        if output.requires_grad:
            output.register_hook(product.record_backward)  # type: ignore[no-untyped-call]
        else:
            self.without_graph.add(name, product)
        return output

    def _recomputed(self, name: str, a: Tensor, b: Tensor, output: Tensor) -> None:
        """Let the call that had these operands record the gradients, if its own output cannot."""
        if not output.requires_grad:
            return
        product = self.without_graph.take(name, lambda call: call.had_operands(a, b))
        if product is not None:
            product.enter_graph(a, b)
            output.register_hook(product.record_backward)  # type: ignore[no-untyped-call]


def _batch_shape(a: Tensor, b: Tensor) -> torch.Size:
    shape: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return shape


class _AttentionCall(NamedTuple):
    """The arguments of `torch.nn.functional.scaled_dot_product_attention`, by their names there."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


class _Product:
    """One call of ``a [..., m, k] @ b [..., k, n]``; operands are stored in their memory layout, batches flattened."""

    def __init__(self, name: str, trace: Trace, a: Tensor, b: Tensor) -> None:
        self.name, self.trace = name, trace
        self.weight = b.dim() == 2 and _is_parameter(b)
        self.batched = b.dim() > 2
        self.batch_shape = _batch_shape(a, b)
        self.needs_a, self.needs_b = a.requires_grad, b.requires_grad
        self.a_key, self.a_transposed = self._keep("left", a)
        self.b_key, self.b_transposed = self._keep("right", b)

    def had_operands(self, a: Tensor, b: Tensor) -> bool:
        """Whether this call had operands of these zero patterns."""
        if self.batched != (b.dim() > 2) or self.batch_shape != _batch_shape(a, b):
            return False
        keys = (self.a_key, self.b_key)
        return all(
            same_bits(self.trace.tensors[key], self._bits(values)[0]) for key, values in zip(keys, (a, b), strict=True)
        )

    def enter_graph(self, a: Tensor, b: Tensor) -> None:
        """Learn from the operands of the recomputed call whose gradients the step computes."""
        self.needs_a, self.needs_b = a.requires_grad, b.requires_grad
        forward = next(op for op in self.trace.ops if (op.name, op.phase) == (self.name, "forward"))
        self.trace.ops[self.trace.ops.index(forward)] = replace(forward, external=self._external())

    def record_forward(self) -> None:
        """``a @ b``."""
        transposed = (self.a_transposed, self.b_transposed)
        self._append("forward", (self.a_key, self.b_key), transposed, self._external())

    def _external(self) -> tuple[str, ...]:
        """The operands that come from outside the step."""
        data = () if self.needs_a else (self.a_key,)
        return (*data, self.b_key) if self.weight or not self.needs_b else data

    def record_backward(self, gradient: Tensor) -> None:
        """``b``'s gradient, transposed: ``gradient^T @ a``; then ``a``'s: ``gradient @ b^T``."""
        gradient_key, transposed = self._keep("output_grad", gradient)
        outside = () if self.needs_a else (self.a_key,)
        if self.needs_b:
            self._append("weight_grad", (gradient_key, self.a_key), (not transposed, self.a_transposed), outside)
        if self.needs_a:
            outside = (self.b_key,) if self.weight else ()
            self._append("input_grad", (gradient_key, self.b_key), (transposed, not self.b_transposed), outside)

    def _keep(self, role: str, values: Tensor) -> tuple[str, bool]:
        """Store the zero pattern in its memory layout: the tensor's key, and whether that layout is transposed."""
        key = f"{self.name}.{role}"
        self.trace.tensors[key], transposed = self._bits(values)
        return key, transposed

    def _bits(self, values: Tensor) -> tuple[BitTensor, bool]:
        """The zero pattern in its memory layout, and whether that is transposed."""
        values = values.detach()
        transposed = values.stride(-2) < values.stride(-1)
        if self.batched:
            values = values.expand(*self.batch_shape, *values.shape[-2:]).flatten(0, -3)
        elif values.dim() > 2:
            values, transposed = values.reshape(-1, values.shape[-1]), False
        return BitTensor.from_array(values.transpose(-2, -1) if transposed else values), transposed

    def _append(
        self, phase: str, keys: tuple[str, str], transposed: tuple[bool, bool], external: tuple[str, ...]
    ) -> None:
        b_role = "weight" if self.weight else "activation"
        roles = {"forward": ("activation", b_role), "input_grad": ("gradient", b_role)}
        self.trace.ops.append(
            TracedOp(
                self.name,
                phase,
                *keys,
                transpose_a=transposed[0],
                transpose_b=transposed[1],
                external=external,
                batched=self.batched,
                operand_roles=roles.get(phase, ("gradient", "activation")),
                weighted=self.weight,
            )
        )


def _are_matrices(*args: Any) -> bool:
    """Whether these are two tensors of at least two axes; products with vectors are not traced."""
    return len(args) == 2 and all(isinstance(each, Tensor) and each.dim() >= 2 for each in args)


def _is_parameter(values: Tensor) -> bool:
    """Whether ``values`` is a parameter or a view of one, as a transposed weight is."""
    return isinstance(values, nn.Parameter) or isinstance(values._base, nn.Parameter)
