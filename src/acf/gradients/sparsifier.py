"""The module at a layer's output or input that sparsifies the gradient there, and the hooks that install it."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.gradients.op import SparsifyGradient
from acf.gradients.spec import GradientSparsity
from acf.ops.differentiate import is_transformed

CHILD_NAME = "gradient_sparsifier"


class GradientSparsifier(nn.Module):
    """The identity on activations; zeroes elements of their gradient as ``spec`` says.

    ``threshold`` (of the coming step), ``sparsity`` (share of zeros in the last gradient) and ``step`` are buffers of
    one element, saved in the ``state_dict``. ``step`` counts gradients, two for a layer that runs twice.
    """

    threshold: Tensor
    sparsity: Tensor
    step: Tensor

    def __init__(self, spec: GradientSparsity, layer_index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.seed = int(np.random.SeedSequence([spec.seed, layer_index]).generate_state(1)[0])
        self.register_buffer("threshold", torch.tensor(spec.threshold or 0.0))
        self.register_buffer("sparsity", torch.tensor(0.0))
        self.register_buffer("step", torch.tensor(0))

    def forward(self, y: Tensor) -> Tensor:
        """``y``, of any shape."""
        if not (torch.is_grad_enabled() and y.requires_grad):
            return y
        if not torch.compiler.is_compiling() and is_transformed():
            raise SparsityError(
                f"gradients sparsified by {self.spec.method!r} have no rule for torch.func or forward mode; "
                "use backward() or torch.autograd.grad, or densify_ the model"
            )
        if torch.compiler.is_compiling() or y._is_view():
            y = y.clone()  # an in-place function on a view would drop its hooks; a compiler fuses the copy away
        state = (self.threshold, self.sparsity, self.step)
        sparse: Tensor = SparsifyGradient.apply(y, *state, self.spec.method, self.spec.target, self.seed)  # type: ignore[no-untyped-call]
        return sparse

    def extra_repr(self) -> str:
        """Method and target, for ``print(model)``."""
        return f"{self.spec.method}, target={self.spec.target}"

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "GradientSparsifier":
        """Follow the model to another device, but stay in float32: thresholds underflow in half precision."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            moved = cast(Tensor, self._buffers[name])
            if buffer is not None and moved.dtype is not buffer.dtype:
                self._buffers[name] = buffer.to(moved.device)
        return self


def install(layer: nn.Module, sparsifier: GradientSparsifier) -> None:
    """Let ``sparsifier`` see the gradient of ``layer``'s output or input; it becomes a child of the layer."""
    layer.add_module(CHILD_NAME, sparsifier)
    if sparsifier.spec.at == "input":
        layer.register_forward_pre_hook(pass_input_through_sparsifier)
    else:
        layer.register_forward_hook(pass_through_sparsifier)


def uninstall(layer: nn.Module) -> GradientSparsifier | None:
    """Take the sparsifier off ``layer`` and return it; None if there is none."""
    sparsifier = sparsifier_of(layer)
    if sparsifier is not None:
        delattr(layer, CHILD_NAME)
        for hooks in (layer._forward_hooks, layer._forward_pre_hooks):
            for key, hook in list(hooks.items()):
                if hook in (pass_through_sparsifier, pass_input_through_sparsifier):
                    del hooks[key]
    return sparsifier


def sparsifier_of(layer: nn.Module) -> GradientSparsifier | None:
    """The sparsifier of ``layer``, if there is one."""
    child = layer._modules.get(CHILD_NAME)
    return child if isinstance(child, GradientSparsifier) else None


def pass_through_sparsifier(layer: nn.Module, args: Any, output: Tensor) -> Tensor:
    """The forward hook of a layer with a sparsifier."""
    sparse: Tensor = layer._modules[CHILD_NAME](output)  # type: ignore[misc]
    return sparse


def pass_input_through_sparsifier(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The forward pre-hook of a layer whose input gradient is sparsified: its own, not other readers'."""
    if not (args and torch.is_grad_enabled() and args[0].requires_grad):
        return args
    own = args[0].view_as(args[0])  # others may read the same tensor, and the sparsifier copies a view
    return layer._modules[CHILD_NAME](own), *args[1:]  # type: ignore[misc]
