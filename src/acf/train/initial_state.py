"""The values at which optimizers start the state of a parameter, where these are not zero."""

from typing import Any

from torch import Tensor

from acf.train.optimizers import Optimizer

InitialValue = float | str
"""A number, or the option of the parameter group that holds it."""

INITIAL_VALUES: dict[tuple[str, str], dict[str, InitialValue]] = {
    ("torch", "Adagrad"): {"sum": "initial_accumulator_value"},
    ("torch", "Rprop"): {"step_size": "lr"},
    ("pytorch_optimizer", "Adai"): {"beta1_prod": 1.0},
    ("pytorch_optimizer", "BSAM"): {"s": 1.0},
    ("pytorch_optimizer", "DAdaptAdaGrad"): {"alpha_k": 1e-6},
    ("pytorch_optimizer", "VSGD"): {"bg": "pbg2", "bhg": "pbhg2"},
    ("pytorch_optimizer", "Yogi"): {"exp_avg": "initial_accumulator", "exp_avg_sq": "initial_accumulator"},
}
"""By package and class of the optimizer: entries of the state that a new block must start at another value than zero.

These optimizers divide by the entry, or multiply by it: from zero they give values that are not finite (BSAM,
DAdaptAdaGrad, VSGD), or no or other updates than a fresh parameter gets (Rprop, Adai, Adagrad, Yogi).
"""


def initial_values(optimizer: Optimizer) -> dict[str, InitialValue]:
    """The entries of ``INITIAL_VALUES`` for an optimizer or for the class it is derived from."""
    keys = ((each.__module__.split(".")[0], each.__name__) for each in type(optimizer).__mro__)
    return next((INITIAL_VALUES[key] for key in keys if key in INITIAL_VALUES), {})


def initial_value(optimizer: Optimizer, weight: Tensor, entry: Any) -> float | Tensor:
    """What a new block of ``weight`` starts at in this entry of the state; an option may be a tensor of one number."""
    value = initial_values(optimizer).get(entry, 0.0)
    if not isinstance(value, str):
        return value
    group = next(group for group in optimizer.param_groups if any(each is weight for each in group["params"]))
    found: float | Tensor = group[value]
    return found
