"""Replacing dense layers by sparse ones and back, in place: which may be replaced, and what else must change."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from acf.errors import SparsityError
from acf.gradients import install, sparsifier_of, uninstall
from acf.nn.kind import LayerKind
from acf.nn.kinds import dense_kind_of
from acf.nn.sparse_layer import SparseLayer
from acf.sparse import is_sharded

FilterFn = Callable[[nn.Module, str], bool]

# Torch's fused inference path for transformer encoders reads the raw weights of its linear layers, which sparse layers
# do not have. The attribute that each class consults before it takes that path, and the value that keeps it off:
_FAST_PATH_SWITCHES: tuple[tuple[type[nn.Module], str, Any], ...] = (
    (nn.TransformerEncoderLayer, "activation_relu_or_gelu", 0),
    (nn.TransformerEncoder, "use_nested_tensor", False),
)


def require_container(model: nn.Module, sparse_class: type[nn.Module]) -> None:
    """Refuse a model that is itself a layer, which has no parent to replace it in, and one that FSDP has sharded."""
    refuse_sharded(model, "call sparsify_ before fully_shard")
    if dense_kind_of(model) is not None or isinstance(model, sparse_class):
        raise SparsityError(
            f"the model is itself a {type(model).__name__}, which cannot be replaced in place; "
            "put it into a container such as nn.Sequential(layer)"
        )


def refuse_sharded(model: nn.Module, remedy: str) -> None:
    """Refuse a model whose parameters FSDP holds in parts: it would go on with those of the layers replaced."""
    sharded = next((name for name, parameter in model.named_parameters() if is_sharded(parameter)), None)
    if sharded is not None:
        raise SparsityError(f"{sharded} is sharded over processes, and layers are replaced whole; {remedy}")


def choose_dense_layers(
    model: nn.Module,
    filter_fn: FilterFn | None,
    why_not: Callable[[nn.Module, LayerKind], str],
    takes: Callable[[LayerKind], bool],
) -> tuple[dict[str, tuple[nn.Module, LayerKind]], dict[str, str]]:
    """The layers to make sparse with their kinds, and those left dense with the reason, by name.

    ``why_not(module, kind)`` is the reason of one form of sparsity, or an empty string; ``filter_fn`` overrules it.
    ``takes(kind)`` says whether that form exists for a kind of layer.
    """
    owners = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())
    adapters = _adapters(model)
    # Hugging Face ties weights when it has loaded them; until then only this attribute names those to be tied.
    tied = getattr(model, "all_tied_weights_keys", ())
    chosen: dict[str, tuple[nn.Module, LayerKind]] = {}
    left_dense: dict[str, str] = {}
    for name, module in model.named_modules():
        kind = dense_kind_of(module)
        if kind is None:
            continue
        if not kind.is_plain(module):
            reason = f"a {type(module).__name__}, whose own behaviour a sparse layer would not keep"
        elif not takes(kind):
            reason = f"a {type(module).__name__} has no form of this sparsity"
        else:
            reason = _why_unfit(module, owners)
        if f"{name}.weight" in tied:
            reason = "its weight is shared with another module"
        elif module in adapters:
            reason = "an adapter of peft, which multiplies its weight as a matrix"
        reason = reason or kind.why_unfit(module) or (why_not(module, kind) if filter_fn is None else "")
        if filter_fn is not None and not filter_fn(module, name):
            left_dense[name] = "filter_fn leaves it out"
        elif reason:
            left_dense[name] = reason
        else:
            chosen[name] = module, kind
    return chosen, left_dense


def _adapters(model: nn.Module) -> set[nn.Module]:
    """The modules that peft's tuner layers hold beside their base layer (``lora_A``, ``lora_B``), at any depth."""
    found: set[nn.Module] = set()
    for module in model.modules():
        of_peft = type(module).__module__.split(".")[0] == "peft"
        if of_peft and "base_layer" in module._modules:
            beside = (child for name, child in module.named_children() if name != "base_layer")
            found.update(each for child in beside for each in child.modules())
    return found


def _why_unfit(module: nn.Module, owners: Counter[int]) -> str:
    """Why a layer can never be replaced, or an empty string."""
    if module._parameters.get("weight") is None:
        return "its weight is computed by a hook or parametrization"
    if owners[id(module.weight)] > 1:
        return "its weight is shared with another module"
    own_hooks = 0 if sparsifier_of(module) is None else 1  # a sparsifier moves to the successor
    before_forward, backward = module._forward_pre_hooks, (module._backward_hooks or module._backward_pre_hooks)
    if len(module._forward_hooks) > own_hooks or before_forward or backward:
        return "it has hooks, which its sparse successor would lose"
    return ""


def has_hooks(parameter: Tensor) -> bool:
    """Whether someone listens to the gradient of ``parameter`` (``register_hook`` and its like)."""
    return bool(parameter._backward_hooks) or bool(getattr(parameter, "_post_accumulate_grad_hooks", None))


def replace_layers(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> None:
    """Put new modules where the old ones are, under every name they have; gradient sparsifiers move with them."""
    for old, new in replacements.items():
        sparsifier = uninstall(old)
        if sparsifier is not None:
            install(new, sparsifier)
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in replacements:
                setattr(parent, name, replacements[child])
    _set_fast_paths(model)


def no_layer_at_all(model: nn.Module) -> str:
    """The message for a model without a layer to sparsify."""
    return (
        f"{type(model).__name__} has no linear or convolution layer to sparsify; pass a model that has one, "
        "or build the model before calling sparsify_"
    )


def _set_fast_paths(model: nn.Module) -> None:
    """Switch the fused path off in every encoder that holds a sparse layer, and back on where none does any more."""
    for module in model.modules():
        for encoder_class, name, off in _FAST_PATH_SWITCHES:
            if isinstance(module, encoder_class):
                _switch(module, name, off, any(isinstance(child, SparseLayer) for child in module.modules()))


def _switch(module: nn.Module, name: str, off: Any, sparse: bool) -> None:
    kept = f"acf_dense_{name}"
    if sparse and not hasattr(module, kept):
        setattr(module, kept, getattr(module, name, off))
        setattr(module, name, off)
    elif not sparse and hasattr(module, kept):
        setattr(module, name, getattr(module, kept))
        delattr(module, kept)
