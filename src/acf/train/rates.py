"""Learning rates that follow the fan-in which sparsity leaves: the dense model's rate fits its sparse version."""

from math import isfinite, log2
from typing import Any

from torch import Tensor, nn

from acf.errors import ArgumentError, TopologyError, require_kind
from acf.nn.block_layer import BlockSparseLayer
from acf.train.optimizers import Optimizer

MOST_POWER = 2.0
STEPS_PER_OCTAVE = 4
"""Factors are rounded to quarter powers of two, so that layers of similar density share a parameter group."""

SCALE_KEY = "lr_scale"
"""The entry of a parameter group that holds its factor; timm's schedulers read it under this name."""


def scale_rates_(optimizer: Optimizer, model: nn.Module, power: float = 1.0) -> None:
    """Multiply the learning rate of every block-sparse weight by ``density ** -power``, and divide its decay by that.

    One step of Adam changes an output by its rate times the sum of the inputs that are present. With a tenth of the
    inputs the same change takes ten times the rate: ``power=1`` (SµPar: Dey et al., 2024). A global rate high enough
    for sparse layers is too high for embeddings, norms and the output layer, whose rates stay as they are here. The
    product of rate and weight decay, by which weights shrink, stays as it is everywhere.

    Parameter groups of ``optimizer`` are split in place. Call it after `acf.sparsify_`, before the first step and
    before a scheduler is made. Layers that start dense keep the dense rate.

    >>> import torch, acf
    >>> model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4))
    >>> _ = acf.sparsify_(model, acf.BlockSparsity(sparsity=0.75, block=16), lambda layer, name: name == "0")
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    >>> scale_rates_(optimizer, model)
    >>> [(len(group["params"]), group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    [(3, 0.001, 0.1), (1, 0.004, 0.025)]
    """
    require_kind(model, nn.Module, "model", "pass the model that acf.sparsify_ was given")
    if not isfinite(power) or not 0 <= power <= MOST_POWER:
        raise ArgumentError(f"power {power} is not between 0 and {MOST_POWER:g}; use 1, or 0.5 for half of the effect")
    _refuse_begun(optimizer)
    factors = rate_factors(model, power)
    if not factors:
        raise TopologyError("the model has no block-sparse layer; call acf.sparsify_ before acf.scale_rates_")
    optimizer.param_groups[:] = [part for group in optimizer.param_groups for part in _split(group, factors)]


def rate_factors(model: nn.Module, power: float = 1.0) -> dict[nn.Parameter, float]:
    """The factor on the rate of every packed weight of ``model``."""
    layers = [layer for layer in model.modules() if isinstance(layer, BlockSparseLayer)]
    return {layer.weight: _rounded(layer.density**-power) for layer in layers}


def _rounded(factor: float) -> float:
    return float(2.0 ** (round(STEPS_PER_OCTAVE * log2(factor)) / STEPS_PER_OCTAVE))


def _refuse_begun(optimizer: Optimizer) -> None:
    if optimizer.state:
        raise TopologyError("the optimizer has stepped already; call acf.scale_rates_ before the first step")
    for group in optimizer.param_groups:
        if SCALE_KEY in group:
            raise TopologyError(f"the optimizer's groups have {SCALE_KEY} already; call acf.scale_rates_ once")
        if "initial_lr" in group:
            raise TopologyError("a scheduler holds the optimizer's rates; make it after acf.scale_rates_")


def _split(group: dict[str, Any], factors: dict[nn.Parameter, float]) -> list[dict[str, Any]]:
    """``group`` in parts of one factor each, the lowest first."""
    by_factor: dict[float, list[nn.Parameter]] = {}
    for parameter in group["params"]:
        by_factor.setdefault(factors.get(parameter, 1.0), []).append(parameter)
    return [_part(group, factor, by_factor[factor]) for factor in sorted(by_factor)]


def _part(group: dict[str, Any], factor: float, parameters: list[nn.Parameter]) -> dict[str, Any]:
    rate = group["lr"]
    part = group | {
        "params": parameters,
        "lr": rate.clone().mul_(factor) if isinstance(rate, Tensor) else rate * factor,
    }
    if "weight_decay" in part:
        part["weight_decay"] = group["weight_decay"] / factor
    return part | {SCALE_KEY: factor}
