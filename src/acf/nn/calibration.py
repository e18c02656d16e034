"""Input norms of the layers of a trained model on a calibration batch, for an input-aware choice of blocks."""

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.kind import LayerKind
from acf.sparse import BlockLayout

Batch = Tensor | tuple[Any, ...] | Mapping[str, Any]
"""What the model is called with: a tensor, a tuple of positional arguments, or a mapping of keyword arguments."""

ChosenLayers = Mapping[str, tuple[nn.Module, LayerKind]]


@torch.no_grad()
def input_norms(
    model: nn.Module, batch: Batch, layers: ChosenLayers, layouts: Mapping[str, BlockLayout]
) -> dict[str, Tensor]:
    """Root mean square of each input that a layer tells apart, float32 ``[input_count]`` by name.

    The model runs once on ``batch``, in evaluation mode and without gradients. A layer called several times counts
    each call alike.
    """
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    modes = {module: module.training for module in model.modules()}
    with ExitStack() as hooks:
        for name, (dense, kind) in layers.items():
            observe = _observer(_without_values(dense, kind, layouts[name]), kind, seen[name])
            hooks.callback(dense.register_forward_hook(observe).remove)
        try:
            _call(model.eval(), batch)
        finally:
            for module, mode in modes.items():
                module.training = mode
    missed = next((name for name, squares in seen.items() if not squares), None)
    if missed is not None:
        raise SparsityError(
            f"layer {missed!r} got no input from the calibration batch; pass one that reaches it, or leave the layer "
            "out with filter_fn"
        )
    return {name: torch.stack(squares).mean(0).sqrt() for name, squares in seen.items()}


def _observer(
    layer: BlockSparseLayer, kind: LayerKind, squares: list[Tensor]
) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
    def observe(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        x = kind.traced_input(module, inputs[0], output).values if kind.is_traced else inputs[0]
        squares.append(layer.input_squares(x))

    return observe


def _without_values(dense: nn.Module, kind: LayerKind, layout: BlockLayout) -> BlockSparseLayer:
    """The sparse form of a layer on the meta device, which knows how inputs meet columns and takes no memory."""
    shell = copy.copy(dense)
    shell._parameters = {
        name: None if each is None else nn.Parameter(each.detach().to("meta"), requires_grad=False)
        for name, each in dense._parameters.items()
    }
    return kind.block_sparse(shell, layout, torch.ones(layout.grid_rows, layout.grid_cols, dtype=torch.bool))


def _call(model: nn.Module, batch: Batch) -> None:
    if isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, tuple):
        model(*batch)
    else:
        model(batch)
