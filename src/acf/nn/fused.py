"""A sequence of layers that fuses two block-sparse linear layers and the GELU between them."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.linear import BlockSparseLinear
from acf.ops import block_gelu_mlp

FUSED_BLOCKS = (32, 64, 128)
"""Block sizes whose fastest kernels have a fused GELU."""


class FusedSequential(nn.Sequential):
    """An `nn.Sequential` that fuses the GELU between two block-sparse linear layers into their products on a GPU.

    Names, parameters and checkpoints are those of `nn.Sequential`, and so is the result, to the accuracy of the dtype.
    Where the three layers cannot be fused (dense layers, a CPU, float32, a hook on one of them) they run one by one.
    On Hopper, large layers in bfloat16 save the GELU's slope for the backward pass in 8 bits, with an error of at most
    1/400.

    >>> mlp = FusedSequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    >>> mlp(torch.randn(8, 64)).shape
    torch.Size([8, 64])
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x`` through all layers in turn."""
        layers, position = list(self), 0
        while position < len(layers):
            mlp = _gelu_mlp(layers[position : position + 3])
            if mlp is not None and _pays(x, mlp):
                x = mlp(x)
                position += 3
            else:
                x = layers[position](x)
                position += 1
        return x


class GeluMlp(NamedTuple):
    """Two sparse layers with a GELU between them."""

    first: BlockSparseLinear
    second: BlockSparseLinear

    def __call__(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        x, first_weight, second_weight = cast_for_autocast(x, self.first.weight, self.second.weight)
        bias = None if self.first.bias is None else self.first.bias.to(x.dtype)
        y = block_gelu_mlp(x, first_weight, bias, second_weight, self.first.topology, self.second.topology)
        return y if self.second.bias is None else y + self.second.bias.to(y.dtype)


def _gelu_mlp(layers: list[nn.Module]) -> GeluMlp | None:
    """The three layers fused, or None if they are others or one of them has hooks."""
    if len(layers) < 3 or any(_has_hooks(layer) for layer in layers):
        return None
    first, activation, second = layers
    exact = type(activation) is nn.GELU and activation.approximate == "none"
    if exact and type(first) is BlockSparseLinear and type(second) is BlockSparseLinear:
        return GeluMlp(first, second)
    return None


def _has_hooks(layer: nn.Module) -> bool:
    kinds = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(len(hooks) > 0 for hooks in kinds)


def _pays(x: Tensor, mlp: GeluMlp) -> bool:
    """Whether the GPU has kernels for these blocks and the dtype that the layers compute in."""
    dtype = cast_for_autocast(x)[0].dtype
    blocks = {*mlp.first.block_shape, *mlp.second.block_shape}
    return x.is_cuda and dtype in (torch.bfloat16, torch.float16) and blocks.issubset(FUSED_BLOCKS)
