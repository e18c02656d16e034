"""Gradient thresholds in distributed training, where each process adapts its own to its own gradients."""

import torch
from torch import nn

from acf.gradients.sparsifier import GradientSparsifier


@torch.no_grad()
def average_thresholds(model: nn.Module) -> None:
    """Give all processes the mean of their thresholds and sparsities, layer by layer; all of them must call this.

    Weights agree without it: their gradients are reduced after they were sparsified. DistributedDataParallel broadcasts
    rank 0's thresholds at every forward pass. Under FSDP, and with ``broadcast_buffers=False``, each process keeps its
    own; call this before one of them saves a checkpoint, so that all continue from what it holds and a resumed run
    equals this one. A single process keeps what it has.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientSparsifier)]
    if not (layers and torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    device = layers[0].threshold.device
    figures = torch.stack(
        [
            torch.stack([value.double().to(device) for value in (each.threshold, each.sparsity, each.step)])
            for each in layers
        ]
    )
    torch.distributed.all_reduce(figures)
    figures /= torch.distributed.get_world_size()
    for each, (threshold, sparsity, step) in zip(layers, figures, strict=True):
        each.threshold.copy_(threshold)
        each.sparsity.copy_(sparsity)
        each.step.copy_(step.ceil())  # a process that skipped an overflow is behind
