"""N:M sparsity: replacing a model's dense layers by N:M ones, in place."""

from torch import nn

from acf.errors import SparsityError
from acf.nn.kind import LayerKind
from acf.nn.nm_layer import NMLayer
from acf.nn.nm_spec import NMSparsity
from acf.nn.replace import FilterFn, choose_dense_layers, no_layer_at_all, replace_layers, require_container
from acf.nn.summary import NMLayerSummary, SparsitySummary, summary_of


def sparsify_groups(model: nn.Module, spec: NMSparsity, filter_fn: FilterFn | None) -> SparsitySummary:
    """Mask n of every m weights, as `acf.sparsify_` does for an `NMSparsity`.

    Without ``filter_fn`` the first convolution in module order and layers that ``m`` does not divide stay dense.
    """
    require_container(model, NMLayer)
    stem = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    chosen, left_dense = choose_dense_layers(
        model,
        filter_fn,
        lambda module, kind: "the first convolution" if module is stem else _why_undivided(module, kind, spec),
        takes=lambda kind: kind.nm is not None,
    )
    for name, (dense, kind) in chosen.items():
        undivided = _undivided_dimension(dense, kind, spec)
        if undivided:
            raise SparsityError(
                f"m {spec.m} does not divide {undivided} of layer {name!r}; "
                "use an m that does, or leave the layer out with filter_fn"
            )
    if not chosen:
        raise SparsityError(_nothing_to_sparsify(model, spec, left_dense))
    layers = {dense: _make_sparse(dense, kind, spec) for dense, kind in chosen.values()}
    replace_layers(model, layers)
    sparse = (
        NMLayerSummary(name, spec, layers[dense].dense_weights, layers[dense].products())
        for name, (dense, _) in chosen.items()
    )
    return summary_of(model, sparse, left_dense)


def _why_undivided(module: nn.Module, kind: LayerKind, spec: NMSparsity) -> str:
    undivided = _undivided_dimension(module, kind, spec)
    return f"m {spec.m} does not divide its {undivided}" if undivided else ""


def _undivided_dimension(module: nn.Module, kind: LayerKind, spec: NMSparsity) -> str:
    """Name and size of the grouped dimension that ``m`` does not divide, or an empty string."""
    shape = kind.weight(module).shape
    undivided = (f"{kind.dimension_names[dim]} {shape[dim]}" for dim in spec.grouped_dims if shape[dim] % spec.m)
    return next(undivided, "")


def _make_sparse(dense: nn.Module, kind: LayerKind, spec: NMSparsity) -> NMLayer:
    assert kind.nm is not None  # or the layer would not have been chosen
    return kind.nm(dense, spec).train(dense.training)


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
