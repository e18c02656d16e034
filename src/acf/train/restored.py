"""Running a model without a trace: what a pass changes is put back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def restored(model: nn.Module, others: Sequence[nn.Parameter] = ()) -> Iterator[None]:
    """Put back parameters, buffers, gradients and torch's random state when the block ends; gradients are None in it.

    ``others`` are parameters that are put back too, whether the model has them or not. Values are written in place, so
    that captured graphs and optimizers keep their tensors. Meanwhile a copy of all of them lies in memory.
    """
    parameters = list({id(each): each for each in (*model.parameters(), *others)}.values())
    tensors: list[Tensor] = [*parameters, *model.buffers()]
    values = [tensor.detach().clone() for tensor in tensors]
    gradients = [parameter.grad for parameter in parameters]
    devices = sorted({tensor.device.index for tensor in tensors if tensor.is_cuda})
    random_state = torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in devices]
    _set_gradients(parameters, [None] * len(parameters))
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                tensor.copy_(value)
        _set_gradients(parameters, gradients)
        torch.set_rng_state(random_state[0])
        for device, state in zip(devices, random_state[1], strict=True):
            torch.cuda.set_rng_state(state, device)


def _set_gradients(parameters: list[nn.Parameter], gradients: list[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
