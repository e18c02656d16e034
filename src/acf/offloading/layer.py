"""One offloaded layer: its three passes on the device, as a differentiable function."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from acf.nn.autocast import cast_for_autocast
from acf.offloading.engine import RESULT_DTYPES, DeviceMatrix, PendingResult, ProductEngine
from acf.offloading.errors import OffloadError
from acf.offloading.forms import DTYPES, LayerForm
from acf.offloading.weights import ResidentWeight
from acf.runtime import Product, WeightBlocks


@dataclass(eq=False)
class OffloadedLayer:
    """A layer of the model while it runs on a device. ``forward`` takes the place of the module's own."""

    name: str
    module: nn.Module
    form: LayerForm
    engine: ProductEngine
    calls: int = 0
    moves: int = 0
    resident: ResidentWeight = field(init=False)
    blocks: WeightBlocks = field(init=False)
    _topology: Hashable = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.resident = ResidentWeight(self.engine)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output for ``x``: the product from the device, the bias added by the host."""
        self.calls += 1
        (x,) = cast_for_autocast(x)
        if x.dtype not in DTYPES:
            raise OffloadError(
                f"{self.name} got an input of {x.dtype}, and devices multiply bf16; pass float32 or bfloat16, or leave "
                "the layer out of the offloaded model"
            )
        if wanted := self.form.wanted(self.module, x):
            raise OffloadError(f"{self.name} got an input of shape {list(x.shape)} and takes {wanted}; pass such a one")
        operand = self.form.operand(self.module, x)
        y: Tensor = _Passes.apply(operand, self.module.weight, self)  # type: ignore[no-untyped-call]
        return self.form.output(self.module, x, y)

    def submit(self, phase: str, a: DeviceMatrix, b: DeviceMatrix, x: Tensor) -> PendingResult:
        """Launch one pass; ``x`` is the layer's operand, whose shape the product has."""
        conv = self.form.traced_conv(self.module, x)
        key = self.name, phase, tuple(x.shape), self._topology
        product = Product(
            phase=phase,
            rows=x.shape[0],
            weight=self.blocks,
            conv=conv,
            result_dtype=RESULT_DTYPES[phase],
            name=self.name,
        )
        return self.engine.run(self.engine.program(key, product), a.buffer, b.buffer)

    def send_weight(self) -> DeviceMatrix:
        """Bring the weight on the device up to date."""
        key = self.form.topology_key(self.module)
        if key != self._topology:
            self.moves += self._topology is not None
            self._topology, self.blocks = key, self.form.blocks(self.module)
        return self.resident.send(self.form.packed(self.module), self.blocks)


class _Passes(torch.autograd.Function):
    """Forward, input gradient and weight gradient of a layer on the device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: OffloadedLayer) -> Tensor:
        with layer.engine.entered():
            on_device = layer.engine.send(x)
            y = layer.submit("forward", on_device, layer.send_weight(), x).wait()
        ctx.layer, ctx.on_device = layer, on_device
        ctx.save_for_backward(x, weight)  # the weight only so that torch refuses one that changed in between
        return y.to(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        layer: OffloadedLayer = ctx.layer
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        if needs_weight:
            layer.form.observe(layer.module, output_grad.contiguous(), x)
        with layer.engine.entered():
            gradient = layer.engine.send(output_grad)
            results = [
                layer.submit("input_grad", gradient, layer.send_weight(), x) if needs_x else None,
                layer.submit("weight_grad", gradient, ctx.on_device, x) if needs_weight else None,
            ]
            x_grad, packed = (None if result is None else result.wait() for result in results)
        weight_grad = None if packed is None else layer.form.weight_gradient(layer.module, packed).to(weight)
        return None if x_grad is None else x_grad.to(x), weight_grad, None
