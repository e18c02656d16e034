"""Describing a model that is made of torch's own modules as plain values, and building it from them.

A description names classes of `BUILDABLE` alone and their constructors' arguments, so building runs no code of a file.
"""

import inspect
from typing import Any

import torch
from torch import nn

from acf.nn.fused import FusedSequential
from acf.nn.sparse_layer import SparseLayer

CONTAINERS: dict[str, type[nn.Sequential]] = {"Sequential": nn.Sequential, "FusedSequential": FusedSequential}

_LEAVES: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Embedding),
    *(nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Tanh, nn.Sigmoid),
    *(nn.Softmax, nn.LogSoftmax, nn.Dropout, nn.Dropout2d),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)

BUILDABLE: dict[str, type[nn.Module]] = {**CONTAINERS, **{leaf.__name__: leaf for leaf in _LEAVES}}
"""Every class that a description may name."""

_NOT_DESCRIBED = ("device", "dtype")


def describe(module: nn.Module) -> dict[str, Any] | None:
    """Classes and constructor arguments of ``module`` and its children, as of its dense form; None if it has others."""
    if isinstance(module, SparseLayer):
        module = module.to_dense()
    name = type(module).__name__
    if BUILDABLE.get(name) is not type(module):
        return None
    if name not in CONTAINERS:
        return {"class": name, "arguments": _arguments(module)}
    children = {key: describe(child) for key, child in module.named_children()}
    return None if None in children.values() else {"class": name, "children": children}


def build(description: dict[str, Any]) -> nn.Module:
    """The dense module that was described, on the meta device; raises KeyError or TypeError for what is no such."""
    kind = BUILDABLE[description["class"]]
    if description["class"] not in CONTAINERS:
        arguments = {
            key: tuple(each) if isinstance(each, list) else each for key, each in description["arguments"].items()
        }
        with torch.device("meta"):
            return kind(**arguments)
    module = kind()
    for key, child in description["children"].items():
        module.add_module(key, build(child))
    return module


def _arguments(module: nn.Module) -> dict[str, Any]:
    """The constructor arguments, which torch keeps as attributes of their names; of a bias, whether there is one."""
    parameters = inspect.signature(type(module)).parameters.values()
    plain = (each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
    names = [each.name for each in plain if each.name not in _NOT_DESCRIBED and not each.name.startswith("_")]
    values = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return {name: value is not None if name == "bias" else value for name, value in values.items()}
