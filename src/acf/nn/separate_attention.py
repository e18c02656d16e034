"""Attention modules taken apart while layers are chosen, so that their packed projections are layers like others."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from acf.errors import SparsityError
from acf.nn.attention import BlockSparseMultiheadAttention
from acf.nn.replace import has_hooks, replace_layers
from acf.nn.sparse_layer import SparseLayer


@contextmanager
def separated_attention(model: nn.Module, takes: Callable[[str], bool] = lambda name: True) -> Iterator[dict[str, str]]:
    """Within it, `BlockSparseMultiheadAttention` stands for every ``nn.MultiheadAttention`` that ``takes(name)`` names.

    At the end torch's own modules return, unless a projection has become sparse. Yields the modules that are left
    whole, by name, and the reason. Those that were taken apart in vain are added at the end, with an empty reason.
    """
    if isinstance(model, nn.MultiheadAttention):
        raise SparsityError(
            f"the model is itself a {type(model).__name__}, which cannot be replaced in place; "
            "put it into a container such as nn.Sequential(layer)"
        )
    whole: dict[str, str] = {}
    separated: dict[str, tuple[nn.MultiheadAttention, BlockSparseMultiheadAttention]] = {}
    readers = _read_by_peft(model)
    owners = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention) and takes(name):
            reason = "peft reads its packed projections" if module in readers else _why_whole(module, owners)
            if reason:
                whole[name] = reason
            else:
                separated[name] = module, BlockSparseMultiheadAttention(module)
    replace_layers(model, dict(separated.values()))
    try:
        yield whole
    finally:
        in_vain = {name: pair for name, pair in separated.items() if not _has_sparse_layer(pair[1])}
        replace_layers(model, {successor: dense for dense, successor in in_vain.values()})
        whole.update(dict.fromkeys(in_vain, ""))


def join_attention(model: nn.Module) -> None:
    """Put torch's own module in the place of every separated attention without a sparse projection."""
    separated = (module for module in model.modules() if isinstance(module, BlockSparseMultiheadAttention))
    replace_layers(model, {module: module.to_dense() for module in separated if not _has_sparse_layer(module)})


def list_whole(left_dense: Mapping[str, str], whole: Mapping[str, str]) -> dict[str, str]:
    """``left_dense`` with one entry for each attention module that is left ``whole``, in place of its projections."""
    listed: dict[str, str] = {}
    for name, reason in left_dense.items():
        owner = next((each for each in whole if name.startswith(f"{each}.")), None)
        if owner is None:
            listed[name] = reason
        else:
            listed.setdefault(owner, whole[owner] or reason)
    return listed


def _has_sparse_layer(module: nn.Module) -> bool:
    return any(isinstance(child, SparseLayer) for child in module.modules())


def _read_by_peft(model: nn.Module) -> set[nn.Module]:
    """The modules that a module of peft wraps, whose packed projections it reads itself."""
    wrappers = (module for module in model.modules() if type(module).__module__.split(".")[0] == "peft")
    return {child for wrapper in wrappers for child in wrapper.children()}


def _why_whole(attention: nn.MultiheadAttention, owners: Counter[int]) -> str:
    """Why this module cannot be taken apart, or an empty string."""
    kinds = type(attention), type(attention.out_proj)
    if kinds != (nn.MultiheadAttention, NonDynamicallyQuantizableLinear):
        return f"a {kinds[0].__name__} with a {kinds[1].__name__}, whose own behaviour sparse attention would not keep"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name) for module in attention.modules() for name in hooks):
        return "it has hooks, which its sparse successor would lose"
    parameters = list(attention.parameters())
    if any(owners[id(parameter)] > 1 for parameter in parameters):
        return "one of its weights is shared with another module"
    if any(has_hooks(parameter) for parameter in parameters):
        return "a hook on the gradient of its weights would be lost"
    return ""
