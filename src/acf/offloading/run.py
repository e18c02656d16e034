"""`acf.offload`: training a model whose linear and convolution layers run on a device."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from acf.errors import require_kind
from acf.offloading.engine import ProductEngine
from acf.offloading.errors import OffloadError
from acf.offloading.forms import FORMS, why_on_host
from acf.offloading.host_products import HostProducts
from acf.offloading.layer import OffloadedLayer
from acf.offloading.table import StepUsage, format_table
from acf.runtime import Device


@dataclass(frozen=True)
class Unsupported:
    """What stayed on the host: a layer of the model or a function that it calls, and why."""

    name: str
    reason: str
    calls: int = 0


class OffloadRun:
    """A model on a device, as `acf.offload` gives it: what runs there, what does not, and where the time went."""

    def __init__(self, model: nn.Module, device: Device, keep_timeline: bool = False) -> None:
        self.model, self.device, self.keep_timeline = model, device, keep_timeline
        self.engine = ProductEngine(device)
        self.steps: list[StepUsage] = []
        self.layers = {
            name: OffloadedLayer(name, module, FORMS[type(module)], self.engine)
            for name, module in _named_leaves(model)
            if not why_on_host(module)
        }
        if not self.layers:
            raise OffloadError(
                f"{type(model).__name__} has no layer that runs on a device; those are "
                f"{', '.join(kind.__name__ for kind in FORMS)}, in float32 or bfloat16"
            )
        self._host = HostProducts()
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._since_s, self._moves = device.timeline.host_s, 0

    @property
    def unsupported(self) -> list[Unsupported]:
        """Layers that stay on the host, and matrix products outside layers that ran there so far."""
        leaves = ((name, why_on_host(module)) for name, module in _named_leaves(self.model))
        modules = [Unsupported(name, reason) for name, reason in leaves if reason]
        return modules + [
            Unsupported(name, "a product outside a layer has no program", calls)
            for name, calls in sorted(self._host.calls.items())
        ]

    def table(self) -> str:
        """Host, copy, compute and idle time of every optimizer step so far, as text."""
        return format_table(self.steps)

    @contextmanager
    def active(self) -> Iterator["OffloadRun"]:
        """Run the layers on the device in this block."""
        with ExitStack() as stack:
            for layer in self.layers.values():
                stack.callback(_replace_forward(layer))
            handle = register_optimizer_step_post_hook(self._after_optimizer_step)
            stack.callback(handle.remove)
            stack.enter_context(self._host)
            with self.engine.entered():
                pass  # the host's clock starts here
            yield self

    def _after_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        owned = (id(parameter) for group in optimizer.param_groups for parameter in group["params"])
        if not self._parameters.isdisjoint(owned):
            self._end_step()

    def _end_step(self) -> None:
        with self.engine.entered():
            self.device.synchronize()
        timeline = self.device.timeline
        usage = timeline.usage(self._since_s)
        recent = [span for span in timeline.spans if span.end_s > self._since_s]
        copied = tuple(sum(span.nbytes for span in recent if span.engine == engine) for engine in ("h2d", "d2h"))
        moves = sum(layer.moves for layer in self.layers.values())
        self.steps.append(StepUsage.of(len(self.steps), usage, (copied[0], copied[1]), moves - self._moves))
        self._since_s, self._moves = self._since_s + usage.total_s, moves
        if not self.keep_timeline:
            timeline.forget()


def offload(
    model: nn.Module, device: Device | str = "sim", keep_timeline: bool = False
) -> AbstractContextManager[OffloadRun]:
    """Run the three passes of every supported layer of ``model`` on ``device`` inside the ``with`` block.

    The training loop stays as it is. Forward, input gradient and weight gradient of `torch.nn.Linear`,
    `torch.nn.Conv2d` and their block-sparse forms are computed by the device, in its own arithmetic; ``device`` is a
    `acf.runtime.Device` or the name of a backend. Inputs and output gradients travel to the device as bf16, and of the
    weights only blocks that changed. The block's value is an `OffloadRun`: ``run.table()`` has the time of every step,
    ``run.unsupported`` what stayed on the host. ``keep_timeline`` keeps the single operations of finished steps in
    ``device.timeline``, for short runs; otherwise they are dropped once their step has its row.
    """
    require_kind(model, nn.Module, "model", "pass the torch.nn.Module to run")
    require_kind(device, (Device, str), "device", "pass an acf.runtime.Device, or a backend's name such as 'sim'")
    return OffloadRun(model, Device(device) if isinstance(device, str) else device, keep_timeline).active()


def _named_leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that have no modules in them, by name."""
    for name, module in model.named_modules():
        if not any(True for _ in module.children()):
            yield name or type(module).__name__, module


def _replace_forward(layer: OffloadedLayer) -> Callable[[], None]:
    """Put the layer's passes in the place of its module's ``forward``; returns what undoes it.

    A hook keeps containers that would fuse the layer with others from doing so.
    """
    module = layer.module
    handle = module.register_forward_pre_hook(lambda *_: None)
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = layer.forward

    def undo() -> None:
        handle.remove()
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before

    return undo
