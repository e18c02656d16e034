"""Random numbers for layers that are materialised from the meta device: the same in all processes."""

import torch
from torch import Tensor

from acf.sparse import distributed_like, is_sharded


def shared_generator(weight: Tensor) -> torch.Generator:
    """A generator on the CPU, seeded from torch's own; all processes that shard ``weight`` get the first one's seed.

    So ``torch.manual_seed`` decides what is drawn, in one process and in many, on every device.
    """
    seed = torch.randint(1 << 62, (1,))
    if is_sharded(weight):
        from torch.distributed.tensor import Replicate, distribute_tensor

        mesh = weight.device_mesh  # type: ignore[attr-defined]
        seed = distribute_tensor(seed.to(mesh.device_type), mesh, [Replicate()] * mesh.ndim).to_local()
    return torch.Generator().manual_seed(int(seed))


@torch.no_grad()
def fill_uniform(tensor: Tensor, bound: float, generator: torch.Generator) -> None:
    """Fill ``tensor`` from ``[-bound, bound]``; of a sharded one, this process's part of what all draw alike."""
    values = torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator)
    tensor.copy_(distributed_like(values.to(tensor.dtype), tensor))


@torch.no_grad()
def fill_normal(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill ``tensor`` with normal numbers of mean 0; of a sharded one, this process's part of what all draw alike."""
    values = torch.empty(tensor.shape).normal_(0.0, std, generator=generator)
    tensor.copy_(distributed_like(values.to(tensor.dtype), tensor))
