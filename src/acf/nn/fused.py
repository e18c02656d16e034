"""A sequence of layers in which two block-sparse linear layers and the activation between them run as one."""

from typing import NamedTuple

import torch
from torch import Tensor, fx, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.linear import BlockSparseLinear
from acf.ops import MlpLayer, block_mlp

FUSED_BLOCKS = {"cuda": (32, 64, 128), "cpu": (8, 16, 32, 64)}
"""Block sizes whose fastest kernels have an epilogue for the activation, by type of device."""

FUSED_DTYPES = {"cuda": (torch.bfloat16, torch.float16), "cpu": (torch.float32, torch.bfloat16)}
"""The dtypes of these kernels."""

ACTIVATION_NAMES: dict[tuple[type[nn.Module], str], str] = {
    (nn.GELU, "none"): "gelu",
    (nn.GELU, "tanh"): "gelu_tanh",
    (nn.SiLU, ""): "silu",
    (nn.ReLU, ""): "relu",
}
"""The name among `acf.ops.activation.ACTIVATIONS` of a module, by its type and a GELU's approximation."""


class FusedSequential(nn.Sequential):
    """An `nn.Sequential` that computes the activation between two block-sparse linear layers in their products.

    Names, parameters and checkpoints are those of `nn.Sequential`, and so is the result, to the accuracy of the dtype.
    Activations are GELU (exact or by tanh), SiLU and ReLU. `nn.Identity`, and `nn.Dropout` that drops nothing, may lie
    between the layers. Where the three cannot run as one (dense layers, a hook on one of them, float32 on a GPU) they
    run one by one. On Hopper large layers in bfloat16 keep the activation's slope for the backward pass as bytes, with
    an error of at most 1/400.

    >>> mlp = FusedSequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    >>> mlp(torch.randn(8, 64)).shape
    torch.Size([8, 64])
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x`` through all layers in turn."""
        is_traced = isinstance(x, fx.Proxy)  # whether three layers run as one is known when they run
        layers, position = [layer for layer in self if is_traced or not passes_on(layer)], 0
        while position < len(layers):
            mlp = None if is_traced else _fused_mlp(layers[position : position + 3])
            if mlp is not None and _pays(x, mlp) and not _is_probed(mlp):
                x = _through(mlp, x)
                position += 3
            else:
                x = layers[position](x)
                position += 1
        return x


class FusedMlp(NamedTuple):  # without methods: torch.compile of torch 2.8 does not trace those of a named tuple
    """Two sparse layers with an activation of `acf.ops.activation.ACTIVATIONS` between them."""

    first: BlockSparseLinear
    activation: str
    second: BlockSparseLinear


def _fused_mlp(layers: list[nn.Module]) -> FusedMlp | None:
    """The three layers as one, or None where they are others, or someone listens to one of them."""
    if len(layers) < 3 or any(has_forward_hooks(layer) for layer in layers):
        return None
    first, activation, second = layers
    name = activation_name(activation)
    if name is not None and type(first) is BlockSparseLinear and type(second) is BlockSparseLinear:
        return FusedMlp(first, name, second)
    return None


def activation_name(activation: nn.Module) -> str | None:
    """The name of ``activation`` among `acf.ops.activation.ACTIVATIONS`; None if products cannot take it in."""
    return ACTIVATION_NAMES.get((type(activation), getattr(activation, "approximate", "")))


def passes_on(layer: nn.Module) -> bool:
    """Whether the output of ``layer`` is its input, and nobody listens."""
    drops_nothing = type(layer) is nn.Dropout and (layer.p == 0.0 or not layer.training)
    return (type(layer) is nn.Identity or drops_nothing) and not has_forward_hooks(layer)


def has_forward_hooks(layer: nn.Module) -> bool:
    """Whether someone listens to the layer's own forward or backward pass, which a fused product skips."""
    kinds = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(len(hooks) > 0 for hooks in kinds)


def _through(mlp: FusedMlp, x: Tensor) -> Tensor:
    """``x [..., in]`` to ``[..., out]``."""
    (x,) = cast_for_autocast(x)
    first, second = (
        MlpLayer(layer.weight, layer.topology, layer.bias, layer.identity.token) for layer in (mlp.first, mlp.second)
    )
    return block_mlp(x, first, second, mlp.activation)


def _is_probed(mlp: FusedMlp) -> bool:
    """Whether a compiled graph is to score blocks, for which it needs the gradients of both layers' outputs."""
    return torch.compiler.is_compiling() and any(x.identity.probe is not None for x in (mlp.first, mlp.second))


def _pays(x: Tensor, mlp: FusedMlp) -> bool:
    """Whether the device has kernels for these blocks and the dtype that the layers compute in."""
    dtype, device = cast_for_autocast(x)[0].dtype, x.device.type
    blocks = {*mlp.first.block_shape, *mlp.second.block_shape}
    return dtype in FUSED_DTYPES.get(device, ()) and blocks.issubset(FUSED_BLOCKS.get(device, ()))
