"""The dense convolution that a sparse layer was made from: its class and constructor arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from acf.nn.sparse_layer import SparseLayer

_ARGUMENTS = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "padding_mode")


@dataclass(frozen=True)
class DenseConv:
    """Class and constructor arguments of a dense convolution of any dimension, without groups."""

    dense_class: type[nn.Module]
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, dense: nn.Module) -> "DenseConv":
        """Those of a dense layer."""
        own = ("output_padding",) if isinstance(dense, nn.ConvTranspose2d) else ()
        return cls(type(dense), {name: getattr(dense, name) for name in (*_ARGUMENTS, *own)})

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels."""
        return self.arguments["in_channels"], self.arguments["out_channels"]

    def build(self, layer: SparseLayer, weight: Tensor) -> nn.Module:
        """A plain layer with ``weight`` as torch stores it; bias, mode and ``requires_grad`` are those of ``layer``."""
        dense = self.dense_class(**self.arguments, bias=False, device="meta")
        dense.weight = nn.Parameter(weight, requires_grad=layer.weight.requires_grad)
        dense.register_parameter("bias", layer.bias)
        return dense.train(layer.training)

    def __str__(self) -> str:
        inputs, outputs = self.channels
        shown = {name: self.arguments[name] for name in ("kernel_size", "stride", "padding")}
        return f"{inputs}, {outputs}, " + ", ".join(f"{name}={value}" for name, value in shown.items())


def grouped_reason(module: Any) -> str:
    """Why a grouped convolution stays dense; an empty string for one without groups."""
    return f"a grouped convolution (groups={module.groups})" if module.groups != 1 else ""
