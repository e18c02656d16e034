"""Which dense layers may be swapped for sparse ones, and the swap itself, in place."""

from collections import Counter
from collections.abc import Callable, Mapping

from torch import nn

from acf.errors import SparsityError
from acf.gradients import install, sparsifier_of, uninstall
from acf.nn.dense import is_conv1d, is_dense_layer
from acf.nn.fast_path import set_fast_paths
from acf.sparse import is_sharded

FilterFn = Callable[[nn.Module, str], bool]


def require_container(model: nn.Module, layer_kinds: tuple[type[nn.Module], ...]) -> None:
    """Refuse a model that is itself a layer, which has no parent to replace it in, and one that FSDP has sharded."""
    refuse_sharded(model, "call sparsify_ before fully_shard")
    if is_dense_layer(model) or isinstance(model, layer_kinds):
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
    model: nn.Module, filter_fn: FilterFn | None, why_not: Callable[[nn.Module], str], takes_conv1d: bool
) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """The layers to make sparse, and those left dense with the reason, by name.

    ``why_not(module)`` is the reason of one kind of sparsity, or an empty string; ``filter_fn`` overrules it.
    ``takes_conv1d`` says whether that kind knows the ``Conv1D`` of Hugging Face transformers.
    """
    owners = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())
    chosen: dict[str, nn.Module] = {}
    left_dense: dict[str, str] = {}
    for name, module in model.named_modules():
        if not is_dense_layer(module):
            continue
        reason = _why_unfit(module, owners, takes_conv1d) or (why_not(module) if filter_fn is None else "")
        if filter_fn is not None and not filter_fn(module, name):
            left_dense[name] = "filter_fn leaves it out"
        elif reason:
            left_dense[name] = reason
        else:
            chosen[name] = module
    return chosen, left_dense


def _why_unfit(module: nn.Module, owners: Counter[int], takes_conv1d: bool) -> str:
    """Why a layer can never be swapped, or an empty string."""
    known = type(module) in (nn.Linear, nn.Conv2d) or (takes_conv1d and is_conv1d(module))
    if not known:
        return f"a {type(module).__name__}, whose own behaviour a sparse layer would not keep"
    if module._parameters.get("weight") is None:
        return "its weight is computed by a hook or parametrization"
    if owners[id(module.weight)] > 1:
        return "its weight is shared with another module"
    own_hooks = 0 if sparsifier_of(module) is None else 1  # a sparsifier moves to the successor
    before_forward, backward = module._forward_pre_hooks, (module._backward_hooks or module._backward_pre_hooks)
    if len(module._forward_hooks) > own_hooks or before_forward or backward:
        return "it has hooks, which its sparse successor would lose"
    if isinstance(module, nn.Conv2d) and module.groups != 1:
        return f"a grouped convolution (groups={module.groups})"
    return ""


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
    set_fast_paths(model)


def no_layer_at_all(model: nn.Module) -> str:
    """The message for a model without a layer to sparsify."""
    return (
        f"{type(model).__name__} has no nn.Linear or nn.Conv2d to sparsify; pass a model that has one, "
        "or build the model before calling sparsify_"
    )


def dimension_names(module: nn.Module) -> tuple[str, str]:
    """What the outputs and inputs of a layer are called."""
    return ("out_channels", "in_channels") if isinstance(module, nn.Conv2d) else ("out_features", "in_features")
