"""Capture a training step of the user's own model: a function ``module:function`` builds the model and its batch."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from acf.errors import DataError
from acf.plugins import import_object
from acf.trace import capture
from acf.zoo.capture import CapturedStep
from acf.zoo.training import training_loss

EXPECTED = "(model, inputs, labels), or (model, function of the model that returns its loss)"


def capture_own(reference: str) -> CapturedStep:
    """One training step of the model that ``module:function`` returns, as it is: nothing is trained before.

    The function returns ``(model, inputs, labels)``, with cross-entropy as the loss (binary where labels are floats),
    or ``(model, loss_of)``, where ``loss_of(model)`` runs the forward pass and returns any loss.
    """
    model, loss_of = _built(reference)
    model.zero_grad()
    with capture(model, reference) as trace:
        loss = loss_of(model)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise DataError(f"{reference!r}: the loss is no scalar with a gradient; return one that backward() accepts")
        loss.backward()  # type: ignore[no-untyped-call]
    return CapturedStep(0, loss.item(), trace)


def _built(reference: str) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    """The model, and the function that computes its loss."""
    function = import_object(reference)
    if not callable(function):
        raise DataError(f"{reference!r} is no function; name one that returns {EXPECTED}")
    parts = function()
    if not isinstance(parts, tuple) or len(parts) not in (2, 3) or not isinstance(parts[0], nn.Module):
        raise DataError(f"{reference!r} returned a {type(parts).__name__}; return {EXPECTED}")
    model, *rest = parts
    if len(rest) == 2:
        inputs, labels = rest
        return model, lambda network: training_loss(network(inputs), labels)
    if not callable(rest[0]):
        raise DataError(f"{reference!r} returned a {type(rest[0]).__name__} beside the model; return {EXPECTED}")
    return model, rest[0]
