"""Torch's fused inference path for transformer encoders, which reads the raw weights of its linear layers."""

from typing import Any

from torch import nn

from acf.nn.layer import BlockSparseLayer
from acf.nn.nm_layer import NMLayer

# The attribute that each class consults before it takes the fused path, and the value that keeps it off.
_SWITCHES: tuple[tuple[type[nn.Module], str, Any], ...] = (
    (nn.TransformerEncoderLayer, "activation_relu_or_gelu", 0),
    (nn.TransformerEncoder, "use_nested_tensor", False),
)


def set_fast_paths(model: nn.Module) -> None:
    """Switch the fused path off in every encoder that holds a sparse layer, and back on where none does any more."""
    for module in model.modules():
        for kind, name, off in _SWITCHES:
            if isinstance(module, kind):
                sparse = any(isinstance(child, BlockSparseLayer | NMLayer) for child in module.modules())
                _switch(module, name, off, sparse)


def _switch(module: nn.Module, name: str, off: Any, sparse: bool) -> None:
    kept = f"acf_dense_{name}"
    if sparse and not hasattr(module, kept):
        setattr(module, kept, getattr(module, name, off))
        setattr(module, name, off)
    elif not sparse and hasattr(module, kept):
        setattr(module, name, getattr(module, kept))
        delattr(module, kept)
