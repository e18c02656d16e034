"""Gradient sparsification as a user asks for it."""

from dataclasses import dataclass
from math import isfinite

from acf.errors import SparsityError
from acf.gradients.rules import RULES

PLACES = ("output", "input")


@dataclass(frozen=True)
class GradientSparsity:
    """Zero small elements of the gradient at each layer's output, or input, up to a share ``target`` of zeros.

    Zeros that are there already (of a ReLU, of max pooling) count. ``at="output"`` takes the gradient that arrives at
    the layer: both its gradient products, and the layers before it, use the sparse gradient. ``at="input"`` takes the
    one that the layer passes back, as SparTANN does: only the layers before it use it. Choose that where a batch
    normalisation follows the layer: batch normalisation makes the output gradient sum to zero, zeros put there
    afterwards break that, and training can diverge.

    ``method``: "dts" scales a threshold per layer until the target holds (dynamic threshold scaling), "top-k" ranks
    the elements (meProp), "gaussian" takes the threshold from mean and deviation, "static" keeps one threshold,
    ``threshold`` or the first step's quantile, "random" drops elements at random from ``seed``.

    >>> GradientSparsity(target=0.7).method
    'dts'
    """

    target: float = 0.5
    method: str = "dts"
    threshold: float | None = None
    seed: int = 0
    at: str = "output"

    def __post_init__(self) -> None:
        if not 0.0 < self.target < 1.0:
            raise SparsityError(
                f"target {self.target} is outside (0, 1); it is the share of gradient elements to zero, such as 0.5"
            )
        if self.method not in RULES:
            raise SparsityError(f"method {self.method!r} is not one of {', '.join(RULES)}; use one of these names")
        if self.at not in PLACES:
            raise SparsityError(f"at {self.at!r} is not one of {', '.join(PLACES)}; use one of these names")
        if self.threshold is not None and self.method != "static":
            raise SparsityError(
                f"threshold {self.threshold} is given, but {self.method} finds its own; "
                "leave it out, or use method='static'"
            )
        if self.threshold is not None and not (isfinite(self.threshold) and self.threshold > 0.0):
            raise SparsityError(
                f"threshold {self.threshold} is not above 0; pass such as 1e-6, or none for the first step's quantile"
            )
        if type(self.seed) is not int or self.seed < 0:
            raise SparsityError(f"seed {self.seed!r} is not an integer from 0; pass such as 0")
