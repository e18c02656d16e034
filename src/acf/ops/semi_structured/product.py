"""Linear layers whose weight is 2:4 sparse: the ops, and the autograd function made of them.

The tensor cores skip zeros of one operand, in groups of four along the dimension that is summed over. The forward
product ``x W^T`` sums over the inputs, so W needs groups of inputs. The input gradient ``dy W`` sums over the outputs,
so W needs groups of outputs; it is compressed a second time, transposed. The weight gradient ``dy^T x`` has no weight
to skip and is dense.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from acf.ops.library import Op
from acf.ops.semi_structured.libraries import LIBRARIES, multiply, packed_columns
from acf.ops.two_weights import mask_straight_through
from acf.sparse import nm_mask, transposable_mask

DENSE, INPUTS, OUTPUTS, TILES = "dense", "inputs", "outputs", "tiles"


class Groups(NamedTuple):
    """The 2:4 groups of each product: ``INPUTS``, ``OUTPUTS``, or ``TILES`` of a transposable mask.

    ``DENSE`` forward multiplies by the whole weight; ``DENSE`` backward by the weight as the forward product uses it.
    """

    forward: str
    backward: str


class Operands(NamedTuple):
    """The weight as each product takes it, in the dtype of the product: compressed where its groups are not DENSE.

    ``forward`` stands for ``[out, in]``. ``backward`` stands for ``[in, out]`` compressed, or is ``[out, in]`` dense.
    """

    forward: Tensor
    backward: Tensor


class Product(NamedTuple):
    """What a product needs besides tensors."""

    groups: Groups
    library: str
    decay: float = 0.0


def mask_of(weight: Tensor, groups: str) -> Tensor:
    """The bool 2:4 mask of ``weight [out, in]``."""
    if groups == TILES:
        return transposable_mask(weight, 2, 4)
    return nm_mask(weight, 2, 4, dim=0 if groups == OUTPUTS else 1)


def reference_prune(weight: Tensor, groups: str, left_out: bool, transposed: bool, dtype: torch.dtype) -> Tensor:
    """The plain torch form of the op `prune`."""
    mask = mask_of(weight, groups)
    pruned = torch.where(~mask if left_out else mask, weight, 0.0).to(dtype)
    return (pruned.T if transposed else pruned).contiguous()


def _fake_prune(weight: Tensor, groups: str, left_out: bool, transposed: bool, dtype: torch.dtype) -> Tensor:
    rows, cols = weight.shape
    return weight.new_empty((cols, rows) if transposed else (rows, cols), dtype=dtype)


prune: Op[Tensor] = Op(
    "semi_structured_prune",
    "(Tensor weight, str groups, bool left_out, bool transposed, ScalarType dtype) -> Tensor",
    reference_prune,
    _fake_prune,
)
"""``weight [out, in]`` with zeros where its 2:4 mask is false (``left_out``: true); ``[in, out]`` if transposed."""

compress: Op[Tensor] = Op(
    "semi_structured_compress",
    "(Tensor pruned, str library) -> Tensor",
    lambda pruned, library: LIBRARIES[library].compress(pruned),
    lambda pruned, library: pruned.new_empty(pruned.shape[0], packed_columns(pruned.shape[1])),
)
"""A pruned weight ``[rows, cols]`` in the format of a library."""

multiply_compressed: Op[Tensor] = Op(
    "semi_structured_linear",
    "(Tensor x, Tensor packed, str library) -> Tensor",
    lambda x, packed, library: multiply(library, x, packed),
    lambda x, packed, library: x.new_empty(x.shape[0], packed.shape[0]),
)
"""``x [tokens, cols]`` times the transpose of a compressed weight that stands for ``[rows, cols]``."""


@torch.no_grad()
def make_operands(weight: Tensor, product: Product, dtype: torch.dtype) -> Operands:
    """Prune ``weight [out, in]``, chosen in its own dtype, and compress it in ``dtype`` for both products."""
    groups, library = product.groups, product.library
    weight = weight.detach().contiguous()
    forward = backward = weight.to(dtype)
    if groups.forward != DENSE:
        backward = prune(weight, groups.forward, False, False, dtype)
        forward = compress(backward, library)
    if groups.backward != DENSE:
        backward = compress(prune(weight, groups.backward, False, True, dtype), library)
    return Operands(forward, backward)


def semi_structured_linear(x: Tensor, weight: Tensor, operands: Operands, product: Product) -> Tensor:
    """``x [..., in]`` to ``[..., out]`` by ``operands``, which were made of ``weight [out, in]``.

    Gradients are those of `acf.ops.linear_with_two_weights` with straight-through masks: the weight's is dense, in the
    weight's dtype, with ``decay * weight`` added where the forward mask is false.
    """
    if product.decay:
        weight = _Decay.apply(weight, product.groups.forward, product.decay)  # type: ignore[no-untyped-call]
    y: Tensor = _SemiStructuredLinear.apply(x, weight, *operands, product)  # type: ignore[no-untyped-call]
    return y


class _Decay(torch.autograd.Function):
    """The weight itself; its whole gradient, of whatever order, gets the decay term once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, groups: str, decay: float) -> Tensor:
        ctx.groups, ctx.decay = groups, decay
        ctx.save_for_backward(weight)
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return gradient + ctx.decay * _left_out(weight, ctx.groups), None, None


class _SemiStructuredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, forward: Tensor, backward: Tensor, product: Product) -> Tensor:
        ctx.product = product
        ctx.save_for_backward(x, weight, backward)
        if product.groups.forward == DENSE:
            return torch.nn.functional.linear(x, forward)
        y = multiply_compressed(x.reshape(-1, x.shape[-1]), forward, product.library)
        return y.view(*x.shape[:-1], y.shape[-1])

    @staticmethod
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, operand = ctx.saved_tensors
        product: Product = ctx.product
        input_grad = weight_grad = None
        if ctx.needs_input_grad[0]:
            input_grad = _input_grad(output_grad, weight, operand, product)
        if ctx.needs_input_grad[1]:
            weight_grad = output_grad.reshape(-1, output_grad.shape[-1]).T @ x.reshape(-1, x.shape[-1])
            weight_grad = weight_grad.to(weight.dtype)
        return input_grad, weight_grad, None, None, None


def _input_grad(output_grad: Tensor, weight: Tensor, operand: Tensor, product: Product) -> Tensor:
    if _differentiated_again():
        return output_grad @ _differentiable_weight(weight, product).to(output_grad.dtype)
    if product.groups.backward == DENSE:
        return output_grad @ operand
    gradient = multiply_compressed(output_grad.reshape(-1, output_grad.shape[-1]), operand, product.library)
    return gradient.view(*output_grad.shape[:-1], gradient.shape[-1])


def _differentiable_weight(weight: Tensor, product: Product) -> Tensor:
    """The input gradient's weight, with the derivatives that masked dense products give it."""
    if product.groups.backward == OUTPUTS:
        return torch.where(mask_of(weight.detach(), OUTPUTS), weight, 0.0)
    return mask_straight_through(weight, mask_of(weight.detach(), product.groups.forward))


def _left_out(weight: Tensor, groups: str) -> Tensor:
    if _differentiated_again():
        return torch.where(mask_of(weight.detach(), groups), 0.0, weight)
    return prune(weight.detach().contiguous(), groups, True, False, weight.dtype)


def _differentiated_again() -> bool:
    """Whether this backward pass must itself be differentiable (``create_graph=True``): compressed products are not."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()
