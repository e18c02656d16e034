"""Swapping a model's dense layers for N:M ones, in place."""

from typing import cast

from torch import nn

from acf.errors import SparsityError
from acf.nn.dense import weight_of
from acf.nn.nm_layer import NMConv2d, NMLayer, NMLinear
from acf.nn.nm_spec import NMSparsity
from acf.nn.replace import (
    FilterFn,
    choose_dense_layers,
    dimension_names,
    no_layer_at_all,
    replace_layers,
    require_container,
)
from acf.nn.summary import NMLayerSummary, SparsitySummary


def sparsify_groups(model: nn.Module, spec: NMSparsity, filter_fn: FilterFn | None) -> SparsitySummary:
    """Mask n of every m weights, as `acf.sparsify_` does for an `NMSparsity`.

    Without ``filter_fn`` the first convolution in module order and layers that ``m`` does not divide stay dense.
    """
    require_container(model, (NMLayer,))
    stem = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    chosen, left_dense = choose_dense_layers(
        model, filter_fn, lambda module: _why_not(module, spec, stem), takes_conv1d=False
    )
    for name, dense in chosen.items():
        undivided = _undivided_dimension(dense, spec)
        if undivided:
            raise SparsityError(
                f"m {spec.m} does not divide {undivided} of layer {name!r}; "
                "use an m that does, or leave the layer out with filter_fn"
            )
    if not chosen:
        raise SparsityError(_nothing_to_sparsify(model, spec, left_dense))
    replace_layers(model, {dense: _make_sparse(dense, spec) for dense in chosen.values()})
    sparse = (NMLayerSummary(name, spec, weight_of(dense).numel()) for name, dense in chosen.items())
    return SparsitySummary(tuple(sparse), tuple(left_dense.items()))


def _why_not(module: nn.Module, spec: NMSparsity, stem: nn.Module | None) -> str:
    if module is stem:
        return "the first convolution"
    undivided = _undivided_dimension(module, spec)
    return f"m {spec.m} does not divide its {undivided}" if undivided else ""


def _undivided_dimension(module: nn.Module, spec: NMSparsity) -> str:
    """Name and size of the grouped dimension that ``m`` does not divide, or an empty string."""
    names = dimension_names(module)
    undivided = (dim for dim in spec.grouped_dims if weight_of(module).shape[dim] % spec.m)
    dim = next(undivided, None)
    return "" if dim is None else f"{names[dim]} {weight_of(module).shape[dim]}"


def _make_sparse(dense: nn.Module, spec: NMSparsity) -> NMLayer:
    layer: NMLayer = NMLinear(dense, spec) if isinstance(dense, nn.Linear) else NMConv2d(cast(nn.Conv2d, dense), spec)
    return layer.train(dense.training)


def _nothing_to_sparsify(model: nn.Module, spec: NMSparsity, left_dense: dict[str, str]) -> str:
    if any(isinstance(module, NMLayer) for module in model.modules()):
        return "the model is N:M-sparse already; call densify_ first to sparsify it anew"
    if not left_dense:
        return no_layer_at_all(model)
    name, reason = next(iter(left_dense.items()))
    return (
        f"no layer can take {spec.n}:{spec.m} groups: {name!r} stays dense because {reason} "
        f"({len(left_dense)} layers looked at); use another m or another filter_fn"
    )
