"""DistributedDataParallel for models whose layers start dense and shrink while they train."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acf.errors import TopologyError
from acf.nn import BlockSparseLayer, block_sparse_layers


def data_parallel(model: nn.Module, **options: Any) -> DistributedDataParallel:
    """``model`` in a DistributedDataParallel with ``options``, free to shrink.

    DistributedDataParallel writes down the shape of every gradient it reduces. The weights of layers that have more
    blocks than their target (``init="dense"``) are therefore left out of its buckets; they are averaged when the
    backward pass is over, at the size they then have, unless ``no_sync()`` is on. Layers that start sparse are reduced
    as ever. Build the optimizer and call `acf.attach` before or after.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise TopologyError(
            "there is no process group to replicate over; call torch.distributed.init_process_group first"
        )
    layers = {name: layer for name, layer in block_sparse_layers(model).items() if _will_shrink(layer)}
    names = [f"{prefix}.{name}" if prefix else name for prefix, layer in layers.items() for name in _tensors(layer)]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)  # type: ignore[no-untyped-call]
    wrapper = DistributedDataParallel(model, **options)
    weights = [layer.weight for layer in layers.values() if layer.weight.requires_grad]
    for layer in layers.values():
        for tensor in _tensors(layer).values():
            torch.distributed.broadcast(tensor, group=wrapper.process_group, group_src=0)
    average = _AfterBackward(wrapper, weights)
    for weight in weights:
        weight.register_post_accumulate_grad_hook(average.gradient_is_there)  # type: ignore[no-untyped-call]
    return wrapper


def bucketed_parameters(wrapper: DistributedDataParallel) -> set[int]:
    """Identities of the parameters whose gradients lie in the wrapper's buckets, at fixed shapes."""
    named = wrapper.module.named_parameters()
    return {id(parameter) for name, parameter in named if name not in wrapper.parameters_to_ignore}


def _will_shrink(layer: BlockSparseLayer) -> bool:
    return layer.present_blocks > layer.target_blocks


def _tensors(layer: BlockSparseLayer) -> Mapping[str, Tensor]:
    """What changes its shape when blocks go: the weight and the topology, by the layer's own names for them."""
    return {"weight": layer.weight.data} | layer.topology._asdict()


class _AfterBackward:
    """Averages the gradients of ``weights`` over all processes once a backward pass has computed every one of them.

    One collective after another in the order of the layers, after those of the wrapper: all processes agree on that
    order, whatever the order in which their gradients came.
    """

    def __init__(self, wrapper: DistributedDataParallel, weights: list[nn.Parameter]) -> None:
        self.wrapper = wrapper
        self.weights = weights
        self.is_due = False

    def gradient_is_there(self, _: Tensor) -> None:
        """The first gradient of a backward pass asks for the average at its end."""
        if self.wrapper.require_backward_grad_sync and not self.is_due:
            self.is_due = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        self.is_due = False
        group = self.wrapper.process_group
        for weight in self.weights:
            if weight.grad is None:  # not used by this process, but perhaps by another
                weight.grad = torch.zeros_like(weight)
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        pending = [torch.distributed.all_reduce(gradient, group=group, async_op=True) for gradient in gradients]
        for gradient, work in zip(gradients, pending, strict=True):
            work.wait()
            gradient /= torch.distributed.get_world_size(group)
