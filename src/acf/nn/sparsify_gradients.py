"""Gradient sparsity: sparsifying the gradients at the outputs of a model's layers, in place."""

from typing import cast

from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from acf.errors import SparsityError
from acf.gradients import GradientSparsifier, GradientSparsity, install, sparsifier_of
from acf.nn.kinds import kind_of
from acf.nn.replace import FilterFn, no_layer_at_all
from acf.nn.summary import GradientLayerSummary, SparsitySummary


def sparsify_gradients(model: nn.Module, spec: GradientSparsity, filter_fn: FilterFn | None) -> SparsitySummary:
    """Sparsify output gradients of dense, block-sparse and N:M layers, for `acf.sparsify_` and a `GradientSparsity`."""
    layers = {name: module for name, module in model.named_modules() if kind_of(module) is not None}
    reasons = {name: _why_not(module, name, filter_fn) for name, module in layers.items()}
    chosen = {name: module for name, module in layers.items() if not reasons[name]}
    left_out = tuple((name, reason) for name, reason in reasons.items() if reason)
    if not chosen:
        raise SparsityError(_nothing_to_sparsify(model, left_out))
    for index, layer in enumerate(chosen.values()):
        device = next(layer.parameters()).device
        install(layer, GradientSparsifier(spec, layer_index=index).to(device).train(layer.training))
    sparse = (GradientLayerSummary(name, spec, cast(Tensor, layer.weight).numel()) for name, layer in chosen.items())
    return SparsitySummary(tuple(sparse), left_out)


def _why_not(module: nn.Module, name: str, filter_fn: FilterFn | None) -> str:
    if filter_fn is not None and not filter_fn(module, name):
        return "filter_fn leaves it out"
    if sparsifier_of(module) is not None:
        return "its gradient is sparsified already"
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "attention reads its weight and never calls it"
    return ""


def _nothing_to_sparsify(model: nn.Module, left_out: tuple[tuple[str, str], ...]) -> str:
    if not left_out:
        return no_layer_at_all(model)
    name, reason = left_out[0]
    return (
        f"no layer's gradient can be sparsified: {name!r} is left out because {reason} "
        f"({len(left_out)} layers looked at); call densify_ first to sparsify anew, or use another filter_fn"
    )
