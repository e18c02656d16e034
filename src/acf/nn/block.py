"""Swapping a model's dense layers for block-sparse ones, in place."""

from typing import Any

import torch
from torch import nn

from acf.errors import SparsityError
from acf.masks import LayerShape, kept_blocks
from acf.nn.conv import BlockSparseConv2d
from acf.nn.layer import BlockSparseLayer
from acf.nn.linear import BlockSparseLinear
from acf.nn.replace import (
    DenseLayer,
    FilterFn,
    choose_dense_layers,
    dimension_names,
    no_layer_at_all,
    replace_layers,
    require_container,
)
from acf.nn.spec import BlockSparsity
from acf.nn.summary import SparsitySummary, block_sparse_layers, summarize
from acf.sparse import BlockLayout, conv_weight_to_matrix


def sparsify_blocks(model: nn.Module, spec: BlockSparsity, filter_fn: FilterFn | None) -> SparsitySummary:
    """Keep the weight blocks of greatest norm, as `acf.sparsify_` does for a `BlockSparsity`."""
    require_container(model, (BlockSparseLayer,))
    chosen, left_dense = choose_layers(model, spec, filter_fn)
    if not chosen:
        raise SparsityError(_nothing_to_sparsify(model, spec, left_dense))
    layouts = {name: _layout_of(name, dense, spec) for name, dense in chosen.items()}
    shapes = [LayerShape(name, tuple(dense.weight.shape), layouts[name].block_count) for name, dense in chosen.items()]
    counts = kept_blocks(shapes, spec.sparsity, spec.distribution)
    sparse = {
        name: _make_sparse(dense, layouts[name], count)
        for (name, dense), count in zip(chosen.items(), counts, strict=True)
    }
    replace_layers(model, {chosen[name]: layer for name, layer in sparse.items()})
    model.register_load_state_dict_pre_hook(check_checkpoint)  # type: ignore[no-untyped-call]
    return SparsitySummary(tuple(summarize(name, layer) for name, layer in sparse.items()), tuple(left_dense.items()))


def choose_layers(
    model: nn.Module, spec: BlockSparsity, filter_fn: FilterFn | None
) -> tuple[dict[str, DenseLayer], dict[str, str]]:
    """The layers to make sparse, and those left dense with the reason, by name."""
    return choose_dense_layers(model, filter_fn, lambda module: _why_thin(module, spec))


def _why_thin(module: DenseLayer, spec: BlockSparsity) -> str:
    """Why a layer is too thin for one block, or an empty string."""
    (outputs, inputs), (height, width) = module.weight.shape[:2], spec.block_shape
    if outputs < height or inputs < width:
        return f"its {outputs} x {inputs} outputs x inputs are thinner than a {height} x {width} block"
    return ""


def _layout_of(name: str, module: DenseLayer, spec: BlockSparsity) -> BlockLayout:
    outputs, inputs = module.weight.shape[:2]
    height, width = spec.block_shape
    output_name, input_name = dimension_names(module)
    for size, block, dimension in ((inputs, width, input_name), (outputs, height, output_name)):
        if size % block:
            raise SparsityError(
                f"block {block} does not divide {dimension} {size} of layer {name!r}; "
                "use a block that does, or leave the layer out with filter_fn"
            )
    taps = module.weight.shape[2:].numel()
    return BlockLayout(outputs, inputs * taps, height, width)


def _make_sparse(dense: DenseLayer, layout: BlockLayout, count: int) -> BlockSparseLayer:
    """The sparse layer that keeps the ``count`` blocks of greatest l2 norm; ties fall to the lower index."""
    weight = dense.weight.detach()
    norms = layout.block_norms(weight if isinstance(dense, nn.Linear) else conv_weight_to_matrix(weight)).flatten()
    mask = torch.zeros_like(norms, dtype=torch.bool)
    mask[torch.sort(norms, descending=True, stable=True).indices[:count]] = True
    mask = mask.reshape(layout.grid_rows, layout.grid_cols)
    layer: BlockSparseLayer
    if isinstance(dense, nn.Linear):
        layer = BlockSparseLinear(dense, layout, mask)
    else:
        layer = BlockSparseConv2d(dense, layout, mask)
    layer.weight.requires_grad_(dense.weight.requires_grad)
    return layer.train(dense.training)


def check_checkpoint(model: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Refuse a checkpoint that does not fit any one sparse layer of ``model`` before the first is loaded."""
    for name, layer in block_sparse_layers(model).items():
        layer.check_state(state_dict, f"{prefix}{name}.")


def forget_checkpoint_check(model: nn.Module) -> None:
    """Let ``model`` load any checkpoint again, once no layer of it is block-sparse."""
    for key, hook in list(model._load_state_dict_pre_hooks.items()):
        if getattr(hook, "hook", hook) is check_checkpoint:
            del model._load_state_dict_pre_hooks[key]


def _nothing_to_sparsify(model: nn.Module, spec: BlockSparsity, left_dense: dict[str, str]) -> str:
    if block_sparse_layers(model):
        return "the model is block-sparse already; call densify_ first to sparsify it anew"
    if not left_dense:
        return no_layer_at_all(model)
    name, reason = next(iter(left_dense.items()))
    return (
        f"no layer can hold blocks of {spec.block!r}: {name!r} stays dense because {reason} "
        f"({len(left_dense)} layers looked at); use a smaller block or another filter_fn"
    )
