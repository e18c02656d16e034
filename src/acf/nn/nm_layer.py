"""Layers that keep a dense weight and compute with N:M-masked ones."""

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from torch import Tensor, nn

from acf.masks import nm_mask
from acf.nn.autocast import cast_for_autocast
from acf.nn.conv import explicit_padding, geometry_of, pad_explicitly
from acf.nn.nm_masks import NMMasks, WeightState
from acf.nn.nm_spec import NMSparsity
from acf.ops import conv2d_with_two_weights, linear_with_two_weights, mask_straight_through


class NMLayer(nn.Module, ABC):
    """Base of the N:M layers: the dense layer's own ``weight`` and ``bias``, and two masks that follow the weight.

    ``forward_mask`` and ``backward_mask`` are bool buffers of the weight's shape, or None where the method masks
    nothing; they are derived, so a ``state_dict`` is that of the dense layer.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    forward_mask: Tensor | None
    backward_mask: Tensor | None

    def __init__(self, dense: nn.Linear | nn.Conv2d, spec: NMSparsity) -> None:
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

        A compiled graph generates them itself, fused and always fresh, and so does a call with borrowed weights
        (`torch.func.functional_call`): neither may leave a trace in the layer.
        """
        weight = self.weight
        if torch.compiler.is_compiling() or not isinstance(weight, nn.Parameter) or weight.is_inference():
            return self._generate_masks()
        if self._masks_made_for is None or not self._masks_made_for.holds_for(weight):
            self.refresh_masks()
        return NMMasks(self.forward_mask, self.backward_mask)

    def refresh_masks(self) -> None:
        """Generate the masks anew. Needed by hand only after writing to ``weight.data``, which torch does not track."""
        with torch.inference_mode(False):  # masks made while evaluating serve the next training step too
            self.forward_mask, self.backward_mask = self._generate_masks()
        self._masks_made_for = None if self.weight.is_inference() else WeightState.of(self.weight)

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

    @abstractmethod
    def to_dense(self) -> nn.Module:
        """The plain torch layer whose forward pass computes the same; masked weights become zeros."""

    def extra_repr(self) -> str:
        """Shape, pattern and method, for ``print(model)``."""
        shape = "x".join(str(size) for size in self.weight.shape)
        return f"{shape}, {self.spec.n}:{self.spec.m}, method={self.spec.method}, bias={self.bias is not None}"

    def _product_weights(self) -> tuple[Tensor, Tensor | None]:
        """The differentiable forward weight, and the input gradient's weight if that is another."""
        forward_mask, backward_mask = self.masks()
        weight: Tensor = self.weight
        if forward_mask is not None:
            weight = mask_straight_through(weight, forward_mask, self.spec.decay_factor)
        if backward_mask is None:
            return weight, None
        return weight, torch.where(backward_mask, self.weight.detach(), 0.0)

    def _generate_masks(self) -> NMMasks:
        n, m, methods = self.spec.n, self.spec.m, self.spec.masks
        forward, backward = (
            None if dim is None else nm_mask(self.weight.detach(), n, m, dim)
            for dim in (methods.forward_dim, methods.backward_dim)
        )
        return NMMasks(forward, backward)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._masks_made_for = None


class NMLinear(NMLayer):
    """``y [..., out] = x [..., in] @ W.T + bias`` with N:M-masked ``W``; ``weight [out, in]`` stays dense."""

    def __init__(self, dense: nn.Linear, spec: NMSparsity) -> None:
        super().__init__(dense, spec)
        self.in_features = dense.in_features
        self.out_features = dense.out_features

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        weight, backward_weight = self._product_weights()
        if backward_weight is None:
            return nn.functional.linear(x, weight, self.bias)
        x, weight, backward_weight = cast_for_autocast(x, weight, backward_weight)
        y = linear_with_two_weights(x, weight, backward_weight)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def to_dense(self) -> nn.Linear:
        """A plain `torch.nn.Linear` whose forward pass computes the same; masked weights become zeros."""
        dense = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        dense.weight = nn.Parameter(self.forward_weight(), requires_grad=self.weight.requires_grad)
        dense.register_parameter("bias", self.bias)
        return dense.train(self.training)


class NMConv2d(NMLayer):
    """2-D convolution with N:M-masked weights; ``weight [out, in, kh, kw]`` stays dense."""

    def __init__(self, dense: nn.Conv2d, spec: NMSparsity) -> None:
        super().__init__(dense, spec)
        self.in_channels = dense.in_channels
        self.out_channels = dense.out_channels
        self.padding_mode = dense.padding_mode
        self.declared_padding = cast(str | tuple[int, int], dense.padding)  # what the dense layer said, for to_dense
        self.explicit_padding = explicit_padding(dense)
        self.geometry = geometry_of(dense)

    def forward(self, x: Tensor) -> Tensor:
        """``x [batch, in, h, w]`` to ``[batch, out, oh, ow]``; ``[in, h, w]`` to ``[out, oh, ow]``."""
        if x.dim() == 3:
            return self._convolve(x.unsqueeze(0)).squeeze(0)
        return self._convolve(x)

    def _convolve(self, x: Tensor) -> Tensor:
        x = pad_explicitly(x, self.explicit_padding, self.padding_mode)
        weight, backward_weight = self._product_weights()
        geometry = self.geometry
        if backward_weight is None:
            return torch.conv2d(x, weight, self.bias, geometry.stride, geometry.padding, geometry.dilation)
        x, weight, backward_weight = cast_for_autocast(x, weight, backward_weight)
        y = conv2d_with_two_weights(x, weight, backward_weight, geometry)
        return y if self.bias is None else y + self.bias.to(y.dtype)[:, None, None]

    def to_dense(self) -> nn.Conv2d:
        """A plain `torch.nn.Conv2d` whose forward pass computes the same; masked weights become zeros."""
        dense = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            self.geometry.kernel_size,
            stride=self.geometry.stride,
            padding=self.declared_padding,
            dilation=self.geometry.dilation,
            bias=False,
            padding_mode=self.padding_mode,
            device="meta",
        )
        dense.weight = nn.Parameter(self.forward_weight(), requires_grad=self.weight.requires_grad)
        dense.register_parameter("bias", self.bias)
        return dense.train(self.training)
