"""The layers that run on a device, one form each: what their operands are, and how a gradient gets its shape back."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, cast

import torch
from torch import Tensor, nn

from acf.nn import BlockSparseConv2d, BlockSparseLinear
from acf.nn.conv2d import Conv2dSettings
from acf.ops import Conv2dGeometry
from acf.ops.observe import notify
from acf.runtime import WeightBlocks
from acf.sparse import conv_weight_to_matrix, matrix_to_conv_weight
from acf.trace.op import TracedConv


class LayerForm(ABC):
    """What an offloaded layer's products are made of; without state, so that one instance serves all layers."""

    def why_unsupported(self, module: Any) -> str:
        """Why this layer stays on the host, or an empty string."""
        return ""

    @abstractmethod
    def wanted(self, module: Any, x: Tensor) -> str:
        """The shape that ``x`` should have, or an empty string if it has it: a device reads bytes, not shapes."""

    @abstractmethod
    def operand(self, module: Any, x: Tensor) -> Tensor:
        """The input as the product reads it, ``[tokens, in]`` or ``[batch, in, h, w]``; differentiable."""

    @abstractmethod
    def output(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        """The product ``y`` with the layer's bias, in the shape of the layer's output; differentiable."""

    @abstractmethod
    def geometry(self, module: Any) -> Conv2dGeometry | None:
        """The convolution; None for a linear layer."""

    @abstractmethod
    def blocks(self, module: Any) -> WeightBlocks:
        """Where the present blocks of the weight matrix stand."""

    @abstractmethod
    def topology_key(self, module: Any) -> Hashable:
        """Another value whenever `blocks` changed."""

    @abstractmethod
    def packed(self, module: Any) -> Tensor:
        """The blocks, ``[blocks, height, width]``, detached."""

    @abstractmethod
    def weight_gradient(self, module: Any, packed: Tensor) -> Tensor:
        """The gradient of the present blocks in the shape of the layer's parameter."""

    @abstractmethod
    def observe(self, module: Any, output_grad: Tensor, x: Tensor) -> None:
        """Show the operands of a weight gradient to whoever updates the layer's topology."""

    def traced_conv(self, module: Any, x: Tensor) -> TracedConv | None:
        """The convolution with the size of its input."""
        geometry = self.geometry(module)
        if geometry is None:
            return None
        height, width = x.shape[2:]
        return TracedConv(
            geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation, input_size=(height, width)
        )


class _Linear(LayerForm):
    """Inputs ``[..., in]``."""

    def wanted(self, module: Any, x: Tensor) -> str:
        fits = x.dim() >= 1 and x.shape[-1] == module.in_features
        return "" if fits else f"[..., {module.in_features}]"

    def operand(self, module: Any, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1])

    def output(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        y = y if module.bias is None else y + module.bias.to(y.dtype)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def geometry(self, module: Any) -> Conv2dGeometry | None:
        return None


class _Conv2d(LayerForm):
    """Inputs ``[batch, in, h, w]``, or one image ``[in, h, w]``."""

    def wanted(self, module: Any, x: Tensor) -> str:
        settings = self._settings(module)
        channels = settings.channels[0]
        if x.dim() not in (3, 4) or x.shape[-3] != channels:
            return f"[batch, {channels}, h, w] or [{channels}, h, w]"
        height, width = self.operand(module, x).shape[2:]
        if min(settings.geometry.output_size(height, width)) < 1:
            return f"images that hold a kernel of {' x '.join(map(str, settings.geometry.kernel_size))}"
        return ""

    def operand(self, module: Any, x: Tensor) -> Tensor:
        return self._settings(module).pad(x.unsqueeze(0) if x.dim() == 3 else x)

    def output(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        y = y if module.bias is None else y + module.bias.to(y.dtype)[:, None, None]
        return y.squeeze(0) if x.dim() == 3 else y

    def geometry(self, module: Any) -> Conv2dGeometry | None:
        return self._settings(module).geometry

    def why_unsupported(self, module: Any) -> str:
        groups = getattr(module, "groups", 1)
        return f"a convolution of {groups} groups has no program" if groups > 1 else ""

    def _settings(self, module: Any) -> Conv2dSettings:
        return getattr(module, "settings", None) or Conv2dSettings.of(module)


class _Dense(LayerForm):
    """A weight without absent blocks."""

    def blocks(self, module: Any) -> WeightBlocks:
        return WeightBlocks.dense(*self._matrix(module).shape)

    def topology_key(self, module: Any) -> Hashable:
        return tuple(module.weight.shape)

    def packed(self, module: Any) -> Tensor:
        return self._matrix(module).unsqueeze(0)

    def _matrix(self, module: Any) -> Tensor:
        return cast(Tensor, module.weight.detach())

    def weight_gradient(self, module: Any, packed: Tensor) -> Tensor:
        return packed.reshape(module.weight.shape)

    def observe(self, module: Any, output_grad: Tensor, x: Tensor) -> None:
        """A dense weight has no topology."""


class _BlockSparse(LayerForm):
    """The packed weight of a block-sparse layer."""

    def blocks(self, module: Any) -> WeightBlocks:
        layout, topology = module.layout, module.topology
        coordinates = topology.block_rows.cpu().numpy(), topology.block_cols.cpu().numpy()
        return WeightBlocks(layout.rows, layout.cols, module.block_shape, *coordinates)

    def topology_key(self, module: Any) -> Hashable:
        return tuple(each.cpu().numpy().tobytes() for each in (module.block_rows, module.block_cols))

    def packed(self, module: Any) -> Tensor:
        return cast(Tensor, module.weight.detach())

    def weight_gradient(self, module: Any, packed: Tensor) -> Tensor:
        return packed

    def observe(self, module: Any, output_grad: Tensor, x: Tensor) -> None:
        notify(module.identity.token, output_grad, x)


class DenseLinear(_Dense, _Linear):
    """`torch.nn.Linear`."""


class DenseConv2d(_Dense, _Conv2d):
    """`torch.nn.Conv2d` without groups: the weight matrix is ``[out, kh*kw*in]``."""

    def _matrix(self, module: Any) -> Tensor:
        return conv_weight_to_matrix(module.weight.detach())

    def weight_gradient(self, module: Any, packed: Tensor) -> Tensor:
        """``[out, in, kh, kw]``."""
        return matrix_to_conv_weight(packed[0], tuple(module.kernel_size))


class SparseLinear(_BlockSparse, _Linear):
    """`acf.nn.BlockSparseLinear`."""


class SparseConv2d(_BlockSparse, _Conv2d):
    """`acf.nn.BlockSparseConv2d`."""


FORMS: dict[type[nn.Module], LayerForm] = {
    nn.Linear: DenseLinear(),
    nn.Conv2d: DenseConv2d(),
    BlockSparseLinear: SparseLinear(),
    BlockSparseConv2d: SparseConv2d(),
}
"""The layers that run on a device, by class; a derived class may compute something else and stays on the host."""


DTYPES = (torch.float32, torch.bfloat16)
"""Dtypes of inputs and weights that a device computes with, rounded to bf16."""


def why_on_host(module: nn.Module) -> str:
    """Why a module does not run on a device, or an empty string where it does."""
    form = FORMS.get(type(module))
    if form is None:
        return f"{type(module).__name__} has no program"
    if any(parameter.dtype not in DTYPES for parameter in module.parameters(recurse=False)):
        return "only float32 and bfloat16 weights have a program"
    return form.why_unsupported(module)
