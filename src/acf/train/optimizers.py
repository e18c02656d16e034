"""The optimizers of a training run: which of them steps a layer, and what stands inside wrappers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from acf.errors import TopologyError, require_kind

Optimizer = Any
"""A `torch.optim.Optimizer`, or a wrapper that has ``param_groups``, ``state`` and ``step`` as one has."""


def listed(optimizers: Optimizer | Sequence[Optimizer]) -> list[Optimizer]:
    """One or several optimizers as a list."""
    return list(optimizers) if isinstance(optimizers, list | tuple) else [optimizers]


def with_inner(optimizer: Optimizer) -> list[Optimizer]:
    """The optimizer and those it keeps in its attributes, outermost first: Lookahead, SAM, ZeroRedundancyOptimizer."""
    found, waiting = [optimizer], [optimizer]
    while waiting:
        for inner in _attributes(waiting.pop(0)):
            if _is_optimizer(inner) and all(inner is not each for each in found):
                found.append(inner)
                waiting.append(inner)
    return found


def _attributes(optimizer: Optimizer) -> Iterator[Any]:
    """Attribute values, and the elements of those that are lists."""
    for value in list(vars(optimizer).values()):
        yield value
        if isinstance(value, list | tuple):
            yield from value


def _is_optimizer(value: object) -> bool:
    if isinstance(value, torch.optim.Optimizer):
        return True
    has_groups = not isinstance(value, nn.Module | type) and isinstance(getattr(value, "param_groups", None), list)
    return has_groups and callable(getattr(value, "step", None))


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """All parameters that the optimizer steps."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def check_held(weights: Mapping[str, nn.Parameter], optimizers: Sequence[Optimizer]) -> None:
    """Every weight must be stepped by exactly one optimizer, itself and not a copy of it."""
    if not optimizers:
        raise TopologyError("no optimizer was given; pass the one, or a list of those, that step the model")
    for optimizer in optimizers:
        if not _is_optimizer(optimizer):
            require_kind(
                optimizer, torch.optim.Optimizer, "optimizer", "pass the one, or a list of those, that step it"
            )
    held = [{id(parameter) for parameter in parameters_of(optimizer)} for optimizer in optimizers]
    for name, weight in weights.items():
        holders = [type(each).__name__ for each, ids in zip(optimizers, held, strict=True) if id(weight) in ids]
        if len(holders) > 1:
            raise TopologyError(
                f"{name}.weight is in {len(holders)} optimizers ({', '.join(holders)}); give it to one of them"
            )
    missing = [name for name, weight in weights.items() if not any(id(weight) in ids for ids in held)]
    if missing:
        raise TopologyError(_missing_message(missing, len(weights), optimizers))
    for optimizer, ids in zip(optimizers, held, strict=True):
        for inner in with_inner(optimizer)[1:]:
            if any(id(parameter) not in ids for parameter in parameters_of(inner)):
                raise TopologyError(
                    f"{type(optimizer).__name__} steps copies of the parameters in {type(inner).__name__}, and blocks "
                    "that move in the model would not move in the copies; use an optimizer that holds the parameters"
                )


def check_can_resize(names: Sequence[str], optimizers: Sequence[Optimizer]) -> None:
    """Refuse optimizers that hold parameters in flat buckets where the weights of the layers ``names`` must shrink."""
    for member in (member for optimizer in optimizers for member in with_inner(optimizer)):
        if names and getattr(member, "parameters_as_bucket_view", False):
            raise TopologyError(
                f"{names[0]} must shrink, and {type(member).__name__} holds its weight in a bucket of fixed size; "
                'pass parameters_as_bucket_view=False, or use init="sparse"'
            )


def _missing_message(missing: list[str], count: int, optimizers: Sequence[Optimizer]) -> str:
    names = [type(each).__name__ for each in optimizers]
    matrix_only = [name for name in names if "muon" in name.lower()]
    if matrix_only:
        shown = ", ".join(f"{name}.weight" for name in missing[:3]) + (", ..." if len(missing) > 3 else "")
        return (
            f"{' and '.join(names)} hold no {shown}: {matrix_only[0]} takes matrices, and a packed weight is "
            "[nnz, height, width]; give AdamW every parameter that is not a matrix, "
            "AdamW([p for p in model.parameters() if p.dim() != 2]), and attach to [muon, adamw]"
        )
    who = "the optimizer does not hold" if len(names) == 1 else f"none of {', '.join(names)} holds"
    return (
        f"{who} {missing[0]}.weight ({len(missing)} of {count} sparse layers missing); "
        "build it from model.parameters() after sparsify_, then attach"
    )
