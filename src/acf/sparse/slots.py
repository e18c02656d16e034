"""Reading and filling the slots of packed tensors ``[nnz, ...]``, whole or sharded over processes along dimension 0."""

import torch
from torch import Tensor

from acf.errors import TopologyError


def is_sharded(tensor: Tensor) -> bool:
    """Whether the tensor is a `torch.distributed.tensor.DTensor`, as FSDP's ``fully_shard`` makes of parameters."""
    return hasattr(tensor, "placements")


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or a sharded one gathered from all processes, which must all call this."""
    if not is_sharded(tensor):
        return tensor
    gathered: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return gathered


def distributed_like(tensor: Tensor, other: Tensor) -> Tensor:
    """``tensor``, which every process holds whole, sharded over processes as ``other`` is; itself if that is whole."""
    if not is_sharded(other):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = other.device_mesh, other.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(other.device), mesh, placements, src_data_rank=None)


@torch.no_grad()
def fill_slots(tensor: Tensor, slots: Tensor, value: float | Tensor) -> None:
    """Write ``value`` where bool ``slots [nnz]`` is true in ``tensor [nnz, ...]``, in place; of a shard, its own part.

    A mask instead of indices: its size does not depend on how many slots there are, so nothing waits for the device.
    """
    if is_sharded(tensor):
        slots = slots[_held_slots(tensor)]
        tensor = tensor.to_local()  # type: ignore[attr-defined]
    tensor.masked_fill_(slots.reshape(-1, *[1] * (tensor.dim() - 1)), value)


def zero_slots(tensor: Tensor, slots: Tensor) -> None:
    """Zero the slots of ``tensor [nnz, ...]`` where bool ``slots [nnz]`` is true, as `fill_slots` does."""
    fill_slots(tensor, slots, 0.0)


def check_slot_shards(tensor: Tensor) -> None:
    """Refuse a packed tensor of which a process holds parts of blocks."""
    placements = tensor.placements  # type: ignore[attr-defined]
    if any(placement.is_shard() and placement.dim != 0 for placement in placements):
        raise TopologyError(
            f"a packed weight is sharded as {placements}, which cuts through blocks; shard dimension 0 alone, "
            "as fully_shard does by default"
        )


def _held_slots(tensor: Tensor) -> Tensor:
    """The slots that this process holds, in local order."""
    from torch.distributed.tensor import distribute_tensor

    check_slot_shards(tensor)
    placements = tensor.placements  # type: ignore[attr-defined]
    slots = torch.arange(tensor.shape[0], device=tensor.device)
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    held: Tensor = distribute_tensor(slots, mesh, placements, src_data_rank=None).to_local()
    return held
