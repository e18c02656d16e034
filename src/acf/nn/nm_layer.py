"""Layers that keep a dense weight and compute with N:M-masked ones."""

from collections.abc import Callable
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn

from acf.masks import nm_mask, transposable_mask
from acf.nn.initial import fill_uniform, shared_generator
from acf.nn.nm_masks import NMMasks, WeightState, may_keep
from acf.nn.nm_spec import NMSparsity
from acf.nn.sparse_layer import SparseLayer
from acf.ops import mask_straight_through
from acf.sparse import conv_weight_to_matrix


class NMLayer(SparseLayer):
    """Base of the N:M layers: the dense layer's own ``weight`` and ``bias``, and two masks that follow the weight.

    ``forward_mask`` and ``backward_mask`` are bool buffers of the weight's shape, or None where the method masks
    nothing; they are derived, so a ``state_dict`` is that of the dense layer.
    """

    forward_mask: Tensor | None
    backward_mask: Tensor | None

    def __init__(self, dense: nn.Module, spec: NMSparsity) -> None:
        super().__init__()
        self.spec = spec
        self.weight = cast(nn.Parameter, dense.weight)
        self.bias = cast(nn.Parameter | None, dense.bias)
        self._masks_made_for: WeightState | None = None
        self.register_buffer("forward_mask", None, persistent=False)
        self.register_buffer("backward_mask", None, persistent=False)
        self.refresh_masks()

    def masks(self) -> NMMasks:
        """The masks of the present weight.

        A compiled graph generates them itself, fused and always fresh, and so do a captured CUDA graph and a call with
        borrowed weights (`torch.func.functional_call`): none of them may leave a trace in the layer.
        """
        if not may_keep(self.weight):
            return self._generate_masks()
        if self._masks_made_for is None or not self._masks_made_for.holds_for(self.weight):
            self.refresh_masks()
        return NMMasks(self.forward_mask, self.backward_mask)

    def refresh_masks(self) -> None:
        """Generate the masks anew. Needed by hand only after writing to ``weight.data``, which torch does not track."""
        self._weight_replaced()
        with torch.inference_mode(False):  # masks made while evaluating serve the next training step too
            self.forward_mask, self.backward_mask = self._generate_masks()
        self._masks_made_for = None if self.weight.is_inference() else WeightState.of(self.weight)

    def reset_parameters(self) -> None:
        """Draw weight and bias as the dense layer does, for a model of the meta device after ``to_empty``."""
        if self.weight.is_meta:
            return
        generator, bound = shared_generator(self.weight), prod(self.weight.shape[1:]) ** -0.5
        for tensor in (self.weight, self.bias):
            if tensor is not None:
                fill_uniform(tensor, bound, generator)
        self._masks_made_for = None

    @torch.no_grad()
    def forward_weight(self) -> Tensor:
        """The weight as the forward product uses it, in the dense weight's shape."""
        mask = self.masks().forward
        return self.weight.clone() if mask is None else torch.where(mask, self.weight, 0.0)

    @torch.no_grad()
    def backward_weight(self) -> Tensor:
        """The weight as the input gradient uses it, in the dense weight's shape."""
        mask = self.masks().backward
        return self.forward_weight() if mask is None else torch.where(mask, self.weight, 0.0)

    @property
    def dense_weights(self) -> int:
        """Number of weights of the dense layer, all of which are stored."""
        return self.weight.numel()

    def weight_matrix(self) -> Tensor:
        """The forward product's weight as a matrix, weights that are left out zero; differentiable."""
        return _as_matrix(self._product_weights()[0])

    def forward_matrix(self) -> Tensor:
        """The forward product's weight as a matrix, detached."""
        return _as_matrix(self.forward_weight())

    def backward_matrix(self) -> Tensor | None:
        """The input gradient's weight as a matrix, detached; None if it is the forward product's."""
        return None if self.masks().backward is None else _as_matrix(self.backward_weight())

    def products(self) -> str:
        """How the layer multiplies where it is now, in one phrase."""
        return "dense products: only linear layers with 2:4 groups have others"

    def extra_repr(self) -> str:
        """Shape, pattern and method, for ``print(model)``."""
        shape = "x".join(str(size) for size in self.weight.shape)
        transposable = ", transposable=True" if self.spec.transposable else ""
        spec, has_bias = self.spec, self.bias is not None
        return f"{shape}, {spec.n}:{spec.m}, method={spec.method}{transposable}, bias={has_bias}"

    def _product_weights(self) -> tuple[Tensor, Tensor | None]:
        """The differentiable forward weight, and the input gradient's weight if that is another."""
        forward_mask, backward_mask = self.masks()
        weight: Tensor = self.weight
        if forward_mask is not None:
            weight = mask_straight_through(weight, forward_mask, self.spec.decay_factor)
        if backward_mask is None:
            return weight, None
        return weight, torch.where(backward_mask, self.weight, 0.0)

    def _generate_masks(self) -> NMMasks:
        n, m, methods = self.spec.n, self.spec.m, self.spec.masks
        if self.spec.transposable:
            return NMMasks(transposable_mask(self.weight.detach(), n, m), None)
        forward, backward = (
            None if dim is None else nm_mask(self.weight.detach(), n, m, dim)
            for dim in (methods.forward_dim, methods.backward_dim)
        )
        return NMMasks(forward, backward)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "NMLayer":
        """Follow the model to another device or dtype, where ``to_empty`` leaves no values: masks are made anew."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._weight_replaced()
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._weight_replaced()

    def _weight_replaced(self) -> None:
        """Drop what was derived of the weight, because its values may have changed without a trace."""
        self._masks_made_for = None


def _as_matrix(weight: Tensor) -> Tensor:
    return conv_weight_to_matrix(weight) if weight.dim() == 4 else weight
