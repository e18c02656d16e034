"""The kinds of layers that can become sparse. A new kind is one file and one line here."""

from torch import nn

from acf.nn.conv1d import Conv1dKind
from acf.nn.conv2d import Conv2dKind
from acf.nn.conv3d import Conv3dKind
from acf.nn.conv_transpose2d import ConvTranspose2dKind
from acf.nn.expert_linear import ExpertLinearKind
from acf.nn.kind import LayerKind
from acf.nn.linear import LinearKind
from acf.nn.sparse_layer import SparseLayer
from acf.nn.transposed_linear import TransposedLinearKind

LAYER_KINDS: dict[str, LayerKind] = {
    "linear": LinearKind(),
    "transposed_linear": TransposedLinearKind(),
    "conv1d": Conv1dKind(),
    "conv2d": Conv2dKind(),
    "conv3d": Conv3dKind(),
    "conv_transpose2d": ConvTranspose2dKind(),
    "experts": ExpertLinearKind(),
}
"""Every kind by name; `SparseLayer.kind_name` is one of these."""


def dense_kind_of(module: nn.Module) -> LayerKind | None:
    """The kind of a dense layer; None for all other modules."""
    return next((kind for kind in LAYER_KINDS.values() if kind.is_dense(module)), None)


def kind_of(module: nn.Module) -> LayerKind | None:
    """The kind of a sparse layer or of a dense layer of torch; None for all other modules."""
    if isinstance(module, SparseLayer):
        return LAYER_KINDS[module.kind_name]
    kind = dense_kind_of(module)
    return kind if kind is not None and kind.of_torch else None
