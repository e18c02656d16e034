"""What the processes of a distributed run must agree on, and what some of its wrappers do not allow."""

import gc

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acf.errors import TopologyError
from acf.nn import BlockSparseLayer
from acf.sparse import is_sharded


def sum_over_processes(tensor: Tensor) -> Tensor:
    """``tensor`` summed over all processes, in place; as it is where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
    return tensor


def check_can_shrink(name: str, layer: BlockSparseLayer) -> None:
    """Refuse to shrink a parameter whose shape a wrapper has written down: DDP in its buckets, FSDP in its shards."""
    wrapper = "FSDP" if is_sharded(layer.weight) else "DistributedDataParallel" if _in_ddp(layer.weight) else ""
    if wrapper:
        raise TopologyError(
            f"{name} must shrink from {layer.present_blocks} to {layer.target_blocks} blocks, and {wrapper} holds its "
            'weight at a fixed shape; use init="sparse", or wrap the model when it has reached its target'
        )


def _in_ddp(parameter: nn.Parameter) -> bool:
    """Whether any DistributedDataParallel in this process reduces the gradient of ``parameter``."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    wrappers = [each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)]
    return any(held is parameter for wrapper in wrappers for held in wrapper.parameters())
