"""What the processes of a distributed run must agree on, and what some of its wrappers do not allow."""

import gc
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acf.errors import TopologyError
from acf.nn import BlockSparseLayer
from acf.sparse import is_sharded
from acf.train.data_parallel import bucketed_parameters


def sum_over_processes(tensor: Tensor) -> Tensor:
    """``tensor`` summed over all processes, in place; as it is where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
    return tensor


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model inside DistributedDataParallel, DataParallel and ``torch.compile``, in any order."""
    while True:
        if isinstance(model, DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def check_can_shrink(layers: Mapping[str, BlockSparseLayer]) -> None:
    """Refuse to shrink parameters whose shape a wrapper has written down: DDP in its buckets, FSDP in its shards."""
    replicated = _ddp_parameters() if layers else set()
    for name, layer in layers.items():
        sharded = is_sharded(layer.weight)
        if sharded or id(layer.weight) in replicated:
            remedy = "" if sharded else "wrap it with acf.data_parallel(model), "
            raise TopologyError(
                f"{name} must shrink from {layer.present_blocks} to {layer.target_blocks} blocks, and "
                f"{'FSDP' if sharded else 'DistributedDataParallel'} holds its weight at a fixed shape; "
                f'{remedy}use init="sparse", or wrap the model when it has reached its target'
            )


def _ddp_parameters() -> set[int]:
    """Identities of all parameters whose gradients a DistributedDataParallel in this process reduces."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return set()
    wrappers = [each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)]
    return {identity for wrapper in wrappers for identity in bucketed_parameters(wrapper)}
