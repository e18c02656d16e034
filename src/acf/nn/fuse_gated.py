"""Finding the gated MLPs of a model, such as those of LLaMA, Mistral, Qwen and Gemma, and letting them run as one."""

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.fused import ACTIVATION_NAMES, activation_name, has_forward_hooks
from acf.nn.gated import LAYER_NAMES, GatedMLP
from acf.nn.linear import BlockSparseLinear
from acf.nn.replace import refuse_sharded, replace_layers
from acf.ops.activation import ACTIVATIONS

FUSABLE_LAYERS = (nn.Linear, BlockSparseLinear)


def fuse_gated_mlps_(model: nn.Module) -> tuple[str, ...]:
    """Let every gated MLP of ``model`` run as a `GatedMLP`, in place; the names of those that will.

    A gated MLP is a module of three linear layers ``gate_proj``, ``up_proj`` and ``down_proj`` and an activation
    ``act_fn``, dense or block-sparse, and nothing else, whose result for a random input, in training mode, is
    ``down_proj(act_fn(gate_proj(x)) * up_proj(x))``. Layers, parameters and their names stay, so call it before or
    after `acf.sparsify_`, and load the same checkpoints.

    >>> fuse_gated_mlps_(nn.Sequential(GatedMLP(8, 16)))
    ('0',)
    """
    refuse_sharded(model, "call fuse_gated_mlps_ before fully_shard")
    candidates = {name: module for name, module in model.named_modules() if _has_parts(module)}
    reasons = {name: _why_not(module) for name, module in candidates.items()}
    fused = {name: module for name, module in candidates.items() if not reasons[name]}
    if not fused:
        first = next((f"{name!r} is none: {reason}" for name, reason in reasons.items()), "no module has these layers")
        raise SparsityError(
            f"the model has no gated MLP of {', '.join(LAYER_NAMES)} and act_fn ({first}); build it of acf.GatedMLP"
        )
    if model in fused.values() and not isinstance(model, GatedMLP):
        raise SparsityError("the model is itself a gated MLP, which cannot be replaced in place; use acf.GatedMLP.of")
    others = {module: _as_gated(module) for module in fused.values() if not isinstance(module, GatedMLP)}
    replace_layers(model, others)
    return tuple(fused)


def _has_parts(module: nn.Module) -> bool:
    return all(hasattr(module, name) for name in (*LAYER_NAMES, "act_fn"))


def _why_not(module: nn.Module) -> str:
    """Why a module is no gated MLP that can be fused, or an empty string."""
    if type(module) is GatedMLP:
        return ""
    parts = {name: getattr(module, name) for name in LAYER_NAMES}
    unfit = next((name for name, layer in parts.items() if type(layer) not in FUSABLE_LAYERS), None)
    if unfit is not None:
        return f"{unfit} is a {type(parts[unfit]).__name__}, not a linear layer"
    others = {name for name, _ in module.named_children()} - {*LAYER_NAMES, "act_fn"}
    if others or list(module.parameters(recurse=False)):
        return f"it holds more than these layers: {', '.join(sorted(others)) or 'parameters of its own'}"
    if has_forward_hooks(module):
        return "it has hooks, which its successor would lose"
    if known_activation(module.act_fn) is None:
        return f"no product takes in the activation {module.act_fn}"
    if parts["gate_proj"].weight.is_meta:
        return "it is on the meta device, where its result cannot be checked"
    if not all(bool(layer.weight.any()) for layer in parts.values()):
        return "weights of a layer are all zero, so its result does not tell what it computes; fuse it later"
    return "" if _computes_gate(module) else "its result is another function of these layers"


def _as_gated(module: nn.Module) -> GatedMLP:
    activation = known_activation(module.act_fn)
    assert activation is not None  # `_why_not` has looked
    gate, up, down = (getattr(module, name) for name in LAYER_NAMES)
    return GatedMLP.of(gate, up, down, activation).train(module.training)


def known_activation(activation: object) -> nn.Module | None:
    """``activation``, or the module of torch that computes the same; None if there is none."""
    if isinstance(activation, nn.Module) and activation_name(activation) is not None:
        return activation
    if not callable(activation) or (isinstance(activation, nn.Module) and activation.state_dict()):
        return None
    points = torch.linspace(-8.0, 8.0, 1001, dtype=torch.float64)
    with torch.no_grad():
        values = activation(points)
    for (kind, approximate), name in ACTIVATION_NAMES.items():
        if isinstance(values, Tensor) and torch.allclose(values, ACTIVATIONS[name](points)[0], rtol=0.0, atol=1e-9):
            return kind(approximate=approximate) if approximate else kind()
    return None


@torch.no_grad()
def _computes_gate(module: nn.Module) -> bool:
    """Whether a module, in training mode, computes a gated MLP for a random input."""
    weight: Tensor = module.down_proj.weight  # type: ignore[assignment,union-attr]
    generator, training = torch.Generator().manual_seed(0), module.training
    features: int = module.gate_proj.in_features  # type: ignore[assignment,union-attr]
    x = torch.randn(3, features, generator=generator).to(weight.device, weight.dtype)
    expected = module.down_proj(module.act_fn(module.gate_proj(x)) * module.up_proj(x))  # type: ignore[operator]
    try:
        y = module.train()(x)
    finally:
        module.train(training)
    return isinstance(y, Tensor) and y.shape == expected.shape and bool(torch.allclose(y, expected, rtol=1e-3))
