"""A gated MLP (SwiGLU, GEGLU) whose three block-sparse layers, activation and gate run as one."""

from typing import cast

import torch
from torch import Tensor, fx, nn

from acf.nn.autocast import cast_for_autocast
from acf.nn.fused import FUSED_BLOCKS, FUSED_DTYPES, activation_name, has_forward_hooks
from acf.nn.linear import BlockSparseLinear
from acf.ops import MlpLayer, block_gated_mlp

LAYER_NAMES = ("gate_proj", "up_proj", "down_proj")
"""The linear layers of a gated MLP, named as in LLaMA."""


class GatedMLP(nn.Module):
    """``down_proj(act_fn(gate_proj(x)) * up_proj(x))``: SwiGLU with `nn.SiLU`, GEGLU with `nn.GELU`.

    Parameters and checkpoints have the names of Hugging Face's LLaMA. Once `acf.sparsify_` has made the three layers
    block-sparse, activation, gate and biases are computed in their products, forward and backward, and so is the sum of
    the two input gradients; the result is the same to the accuracy of the dtype. `why_separate` says where the layers
    run one by one instead. On a GPU each part is fused only if that was measured to be faster for its shape.

    >>> mlp = GatedMLP(64, 256)
    >>> mlp(torch.randn(8, 64)).shape
    torch.Size([8, 64])
    """

    def __init__(
        self, features: int, hidden_features: int, activation: nn.Module | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        self.gate_proj: nn.Module = nn.Linear(features, hidden_features, bias)
        self.up_proj: nn.Module = nn.Linear(features, hidden_features, bias)
        self.down_proj: nn.Module = nn.Linear(hidden_features, features, bias)
        self.act_fn = nn.SiLU() if activation is None else activation

    @classmethod
    def of(cls, gate: nn.Module, up: nn.Module, down: nn.Module, activation: nn.Module) -> "GatedMLP":
        """A gated MLP of existing layers, not copies of them."""
        mlp = cls.__new__(cls)
        nn.Module.__init__(mlp)
        mlp.gate_proj, mlp.up_proj, mlp.down_proj, mlp.act_fn = gate, up, down, activation
        return mlp

    def forward(self, x: Tensor) -> Tensor:
        """``x [..., in]`` to ``[..., out]``."""
        if isinstance(x, fx.Proxy) or self.why_separate(x):  # a traced graph is decided on when it runs
            y: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
            return y
        (x,) = cast_for_autocast(x)
        gate, up, down = (
            MlpLayer(layer.weight, layer.topology, layer.bias, layer.identity.token) for layer in self._sparse_layers()
        )
        return block_gated_mlp(x, gate, up, down, cast(str, activation_name(self.act_fn)))

    def why_separate(self, x: Tensor) -> str:
        """Why the layers would run one by one for ``x``; an empty string if they run as one."""
        for name in LAYER_NAMES:
            layer = getattr(self, name)
            if type(layer) is not BlockSparseLinear:
                return f"{name} is a {type(layer).__name__}, not a BlockSparseLinear"
        for name in (*LAYER_NAMES, "act_fn"):
            if has_forward_hooks(getattr(self, name)):
                return f"{name} has a forward or backward hook, which fused products would skip"
        if activation_name(self.act_fn) is None:
            return f"no product takes in the activation {self.act_fn}"
        layers = self._sparse_layers()
        gate, up, down = layers
        if gate.layout.cols != up.layout.cols or not gate.layout.rows == up.layout.rows == down.layout.cols:
            return "the shapes of its layers do not fit each other"
        if torch.compiler.is_compiling() and any(layer.identity.probe is not None for layer in layers):
            return "the compiled graph scores blocks, for which it needs the gradient of every layer's output"
        dtype, device = cast_for_autocast(x)[0].dtype, x.device.type
        if dtype not in FUSED_DTYPES.get(device, ()):
            return f"no fused product computes in {dtype} on {device}"
        blocks = {layer.block_shape for layer in layers}
        if not {side for block in blocks for side in block}.issubset(FUSED_BLOCKS.get(device, ())):
            return f"no fused product has blocks of {sorted(blocks)} on {device}"
        return ""

    def _sparse_layers(self) -> tuple[BlockSparseLinear, BlockSparseLinear, BlockSparseLinear]:
        gate, up, down = (cast(BlockSparseLinear, getattr(self, name)) for name in LAYER_NAMES)
        return gate, up, down
