"""Reading how closely each layer's gradient follows its target."""

from dataclasses import dataclass

from torch import nn

from acf.gradients.sparsifier import sparsifier_of


@dataclass(frozen=True)
class GradientTracking:
    """One layer after ``step`` gradients: the share of zeros in the last, and the threshold for the next."""

    step: int
    target: float
    sparsity: float
    threshold: float


def tracking(model: nn.Module) -> dict[str, GradientTracking]:
    """The gradient sparsity of every layer of ``model`` that has one, by layer name; waits for the device.

    A layer that no gradient has reached yet, such as a first layer's input, has step 0. Call it after a backward pass.
    """
    found = {}
    for name, layer in model.named_modules():
        sparsifier = sparsifier_of(layer)
        if sparsifier is not None:
            step, sparsity, threshold = sparsifier.step, sparsifier.sparsity, sparsifier.threshold
            target = sparsifier.spec.target
            found[name] = GradientTracking(int(step), target, float(sparsity), float(threshold))
    return found
