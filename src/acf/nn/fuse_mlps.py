"""Finding the MLPs of a model, such as those of timm, torchvision and CLIP, and letting them run as one."""

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.nn.fuse_gated import FUSABLE_LAYERS, known_activation
from acf.nn.fused import ACTIVATION_NAMES, FusedSequential, activation_name, has_forward_hooks
from acf.nn.replace import refuse_sharded, replace_layers

PLAIN = (nn.Dropout, nn.Identity)
"""What may be among the layers of an MLP."""

DROPS = "dropout lies between its layers, which no product takes in; set its p to 0"

ACTIVATIONS = ", ".join(dict.fromkeys(kind.__name__ for kind, _ in ACTIVATION_NAMES))

Parts = dict[str, nn.Module]


def fuse_mlps_(model: nn.Module) -> tuple[str, ...]:
    """Let every MLP of ``model`` run as a `FusedSequential`, in place; the names of those that will.

    An MLP is an `nn.Sequential` that holds a linear layer, an activation (GELU, exact or by tanh, SiLU, ReLU) and a
    linear layer, one behind the other; or another module that has just these, and whose result for a random input, in
    training mode, is theirs in turn. Dropout may follow the last one. Linear layers may be dense or block-sparse. They
    keep their names and parameters, so call it before or after `acf.sparsify_`, and load the same checkpoints.

    >>> fuse_mlps_(nn.ModuleList([nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))]))
    ('0',)
    """
    refuse_sharded(model, "call fuse_mlps_ before fully_shard")
    fused: dict[str, nn.Module] = {}
    reasons: dict[str, str] = {}
    replacements: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        if type(module).forward in (nn.Sequential.forward, FusedSequential.forward):
            if _holds_mlp(list(module.children())):
                fused[name] = module
        elif (parts := _parts(module)) is not None:
            successor, reason = _successor(module, parts)
            if successor is None:
                reasons[name] = reason
            elif module is model:
                raise SparsityError(
                    "the model is itself an MLP, which cannot be replaced in place; build it of acf.FusedSequential"
                )
            else:
                fused[name] = replacements[module] = successor
    if not fused:
        first = next((f"{name!r} is none: {reason}" for name, reason in reasons.items()), "no module has these layers")
        raise SparsityError(
            f"the model has no MLP of two linear layers with {ACTIVATIONS} between them ({first}); build it of "
            "acf.FusedSequential"
        )
    for module in fused.values():
        if not isinstance(module, FusedSequential):
            module.__class__ = FusedSequential  # another class of the same object: its owners keep what they know
    replace_layers(model, replacements)
    return tuple(fused)


def _holds_mlp(layers: list[nn.Module]) -> bool:
    """Whether a linear layer, an activation and a linear layer follow each other, but for what changes nothing."""
    steps = [layer for layer in layers if type(layer) not in PLAIN or getattr(layer, "p", 0.0) > 0.0]
    triples = zip(steps, steps[1:], steps[2:], strict=False)
    return any(
        _is_linear(first) and activation_name(between) is not None and _is_linear(last)
        for first, between, last in triples
    )


def _is_linear(layer: nn.Module) -> bool:
    return type(layer) in FUSABLE_LAYERS


def _parts(module: nn.Module) -> Parts | None:
    """The children of a module that has two linear layers and one other layer, besides dropout; None of another."""
    parts = dict(module.named_children())
    others = [layer for layer in parts.values() if not _is_linear(layer) and type(layer) not in PLAIN]
    linear = [layer for layer in parts.values() if _is_linear(layer)]
    return parts if len(linear) == 2 and len(others) == 1 else None


def _successor(module: nn.Module, parts: Parts) -> tuple[FusedSequential | None, str]:
    """What computes the same as one, or None and the reason why nothing does."""
    name = next(each for each, layer in parts.items() if not _is_linear(layer) and type(layer) not in PLAIN)
    activation = known_activation(parts[name])
    if activation is None:
        return None, f"no product takes in the {type(parts[name]).__name__} between its layers"
    if any(True for _ in module.parameters(recurse=False)) or any(True for _ in module.buffers(recurse=False)):
        return None, "it has parameters or buffers of its own"
    if any(has_forward_hooks(each) for each in (module, parts[name])):
        return None, "it has hooks, which its successor would lose"
    if any(layer.weight.is_meta for layer in parts.values() if _is_linear(layer)):
        return None, "it is on the meta device, where its result cannot be checked"
    if not all(bool(layer.weight.any()) for layer in parts.values() if _is_linear(layer)):  # type: ignore[operator]
        return None, "weights of a layer are all zero, so its result does not tell what it computes; fuse it later"
    for order in _orders(parts | {name: activation}):
        successor = FusedSequential(OrderedDict(order))
        if _computes(module, successor):
            drops = not _holds_mlp(list(successor))
            return (None, DROPS) if drops else (successor.train(module.training), "")
    return None, "its result is another function of these layers"


def _orders(parts: Parts) -> Iterator[Parts]:
    """The orders in which the layers may be applied: as they stand, or one linear layer, the activation, the other."""
    yield parts
    first, second = (name for name, layer in parts.items() if _is_linear(layer))
    between = next(name for name, layer in parts.items() if not _is_linear(layer) and type(layer) not in PLAIN)
    for names in ((first, between, second), (second, between, first)):
        yield {name: parts[name] for name in (*names, *(each for each in parts if each not in names))}


@torch.no_grad()
def _computes(module: nn.Module, successor: FusedSequential) -> bool:
    """Whether both give the same for a random input in training mode, with the same random numbers for dropout."""
    first = next(layer for layer in successor if _is_linear(layer))
    weight: Tensor = first.weight  # type: ignore[assignment]
    features: int = first.in_features  # type: ignore[assignment]
    x = torch.randn(2, 3, features, generator=torch.Generator().manual_seed(0)).to(weight.device, weight.dtype)
    training = module.training
    results = []
    try:
        module.train()
        for compute in (module, partial(nn.Sequential.forward, successor.train())):  # layer by layer, to the last bit
            with torch.random.fork_rng([weight.device] if weight.is_cuda else []):
                torch.manual_seed(0)
                results.append(compute(x))
    except RuntimeError:  # of torch, where shapes do not fit in this order
        return False
    finally:
        module.train(training)
    y, expected = results
    return isinstance(y, Tensor) and y.shape == expected.shape and bool(torch.allclose(y, expected, rtol=1e-3))
