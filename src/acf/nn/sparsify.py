"""Swapping a model's dense layers for block-sparse ones, in place, and back."""

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, cast

from torch import nn

from acf.errors import SparsityError
from acf.masks import LayerShape, kept_blocks, top_blocks
from acf.nn.conv import BlockSparseConv2d
from acf.nn.conv1d import BlockSparseConv1D
from acf.nn.dense import is_conv1d, is_dense_layer, weight_matrix_of, weight_of
from acf.nn.fast_path import set_fast_paths
from acf.nn.layer import BlockSparseLayer
from acf.nn.linear import BlockSparseLinear
from acf.nn.spec import BlockSparsity
from acf.nn.summary import SparsitySummary, block_sparse_layers, summarize
from acf.sparse import BlockLayout

FilterFn = Callable[[nn.Module, str], bool]

_SPARSE_FORM: dict[type[nn.Module], Callable[..., BlockSparseLayer]] = {
    nn.Linear: BlockSparseLinear,
    nn.Conv2d: BlockSparseConv2d,
}


def sparsify_(model: nn.Module, spec: BlockSparsity, filter_fn: FilterFn | None = None) -> SparsitySummary:
    """Make the linear and 2-D convolution layers of ``model`` block-sparse, in place.

    ``filter_fn(module, name)`` says which layers to take. Without it every layer is taken except those too
    thin to hold one block (an RGB stem, a 10-class head), grouped convolutions, and layers whose weight is shared
    with another module; the returned summary lists them with the reason. A block that does not divide a layer is
    an error, and then nothing is changed. Build the optimizer afterwards: the parameters are new.
    """
    if is_dense_layer(model) or isinstance(model, BlockSparseLayer):
        raise SparsityError(
            f"the model is itself a {type(model).__name__}, which cannot be replaced in place; "
            "put it into a container such as nn.Sequential(layer)"
        )
    chosen, left_dense = choose_layers(model, spec, filter_fn)
    if not chosen:
        raise SparsityError(_nothing_to_sparsify(model, spec, left_dense))
    layouts = {name: _layout_of(name, dense, spec) for name, dense in chosen.items()}
    shapes = [
        LayerShape(name, tuple(weight_of(dense).shape), layouts[name].block_count) for name, dense in chosen.items()
    ]
    counts = kept_blocks(shapes, spec.sparsity, spec.distribution)
    sparse = {
        name: _make_sparse(dense, layouts[name], count, spec)
        for (name, dense), count in zip(chosen.items(), counts, strict=True)
    }
    _replace(model, {chosen[name]: layer for name, layer in sparse.items()})
    model.register_load_state_dict_pre_hook(check_checkpoint)  # type: ignore[no-untyped-call]
    return SparsitySummary(tuple(summarize(name, layer) for name, layer in sparse.items()), tuple(left_dense.items()))


def densify_(model: nn.Module) -> nn.Module:
    """Turn every block-sparse layer of ``model`` back into a plain torch layer, in place; returns ``model``.

    Absent blocks become stored zeros. Parameters are new again, so an optimizer must be built again too.
    """
    layers = block_sparse_layers(model)
    if not layers:
        raise SparsityError("the model has no block-sparse layer to densify; call sparsify_ first, or leave it as is")
    if model in layers.values():
        raise SparsityError(
            f"the model is itself a {type(model).__name__}, which cannot be replaced in place; call its to_dense()"
        )
    _replace(model, {layer: layer.to_dense() for layer in layers.values()})
    for key, hook in list(model._load_state_dict_pre_hooks.items()):
        if getattr(hook, "hook", hook) is check_checkpoint:
            del model._load_state_dict_pre_hooks[key]
    return model


def choose_layers(
    model: nn.Module, spec: BlockSparsity, filter_fn: FilterFn | None
) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """The layers to make sparse, and those left dense with the reason, by name."""
    owners = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())
    chosen: dict[str, nn.Module] = {}
    left_dense: dict[str, str] = {}
    for name, module in model.named_modules():
        if not is_dense_layer(module):
            continue
        reason = _why_unfit(module, owners) or (_why_thin(module, spec) if filter_fn is None else "")
        if filter_fn is not None and not filter_fn(module, name):
            left_dense[name] = "filter_fn leaves it out"
        elif reason:
            left_dense[name] = reason
        else:
            chosen[name] = module
    return chosen, left_dense


def _why_unfit(module: nn.Module, owners: Counter[int]) -> str:
    """Why a layer can never be swapped, or an empty string."""
    if type(module) not in (nn.Linear, nn.Conv2d) and not is_conv1d(module):
        return f"a {type(module).__name__}, whose own behaviour a sparse layer would not keep"
    if module._parameters.get("weight") is None:
        return "its weight is computed by a hook or parametrization"
    if owners[id(module.weight)] > 1:
        return "its weight is shared with another module"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return "it has hooks, which its sparse successor would lose"
    if isinstance(module, nn.Conv2d) and module.groups != 1:
        return f"a grouped convolution (groups={module.groups})"
    return ""


def _why_thin(module: nn.Module, spec: BlockSparsity) -> str:
    """Why a layer is too thin for one block, or an empty string."""
    (outputs, inputs), (height, width) = weight_of(module).shape[:2], spec.block_shape
    if outputs < height or inputs < width:
        return f"its {outputs} x {inputs} outputs x inputs are thinner than a {height} x {width} block"
    return ""


def _layout_of(name: str, module: nn.Module, spec: BlockSparsity) -> BlockLayout:
    outputs, inputs, *kernel = weight_of(module).shape
    height, width = spec.block_shape
    for size, block, dimension in (
        (inputs, width, "in_channels" if kernel else "in_features"),
        (outputs, height, "out_channels" if kernel else "out_features"),
    ):
        if size % block:
            raise SparsityError(
                f"block {block} does not divide {dimension} {size} of layer {name!r}; "
                "use a block that does, or leave the layer out with filter_fn"
            )
    return BlockLayout(outputs, inputs * prod(kernel), height, width)


def _make_sparse(dense: nn.Module, layout: BlockLayout, count: int, spec: BlockSparsity) -> BlockSparseLayer:
    """The sparse layer that keeps the ``count`` blocks of greatest l2 norm, or all of them for a dense start."""
    balanced, starts_dense = spec.distribution == "balanced", spec.init == "dense"
    norms = layout.block_norms(weight_matrix_of(dense))
    mask = top_blocks(norms, layout.block_count if starts_dense else count, balanced)
    layer = _SPARSE_FORM.get(type(dense), BlockSparseConv1D)(dense, layout, mask)
    layer.target_blocks, layer.balanced, layer.starts_dense = count, balanced, starts_dense
    layer.weight.requires_grad_(cast(nn.Parameter, dense.weight).requires_grad)
    return layer.train(dense.training)


def _replace(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> None:
    """Put new modules where the old ones are, under every name they have."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in replacements:
                setattr(parent, name, replacements[child])
    set_fast_paths(model)


def check_checkpoint(model: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Refuse a checkpoint that does not fit any one sparse layer of ``model`` before the first is loaded."""
    for name, layer in block_sparse_layers(model).items():
        layer.check_state(state_dict, f"{prefix}{name}.")


def _nothing_to_sparsify(model: nn.Module, spec: BlockSparsity, left_dense: dict[str, str]) -> str:
    if block_sparse_layers(model):
        return "the model is block-sparse already; call densify_ first to sparsify it anew"
    if not left_dense:
        return (
            f"{type(model).__name__} has no nn.Linear or nn.Conv2d to sparsify; pass a model that has one, "
            "or build the model before calling sparsify_"
        )
    name, reason = next(iter(left_dense.items()))
    return (
        f"no layer can hold blocks of {spec.block!r}: {name!r} stays dense because {reason} "
        f"({len(left_dense)} layers looked at); use a smaller block or another filter_fn"
    )
