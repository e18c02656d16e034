"""Distributed training: who trains a model together, sums over them, and DDP for layers that shrink."""

import gc
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from acf.errors import LostRankError, TopologyError
from acf.nn import BlockSparseLayer, block_sparse_layers
from acf.nn.fsdp import REMEDY
from acf.sparse import is_sharded
from acf.train.lost_ranks import is_lost_connection


def process_count(process_group: Any = None) -> int:
    """Number of processes of a group, by default of all; 1 where there is none."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size(process_group)


def sum_over_processes(tensor: Tensor, process_group: Any = None) -> Tensor:
    """``tensor`` summed over the processes of a group, in place; unchanged where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        try:
            torch.distributed.all_reduce(tensor, group=process_group)
        except RuntimeError as error:
            if not is_lost_connection(error):
                raise
            rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
            others = f"rank {1 - rank}" if count == 2 else f"one of the {count - 1} other ranks"
            raise LostRankError(
                f"rank {rank} lost {others} while blocks were scored ({str(error).splitlines()[0][-120:]}); start all "
                "of them again from the last checkpoint"
            ) from error
    return tensor


def group_of(model: nn.Module) -> Any:
    """The processes that train ``model`` together, as its wrapper says; None, which means all, where none does.

    They are those of the DistributedDataParallel around it, or of the device mesh that its packed weights are sharded
    over, all dimensions of it: shards and, in HSDP, their replicas.
    """
    while isinstance(getattr(model, "_orig_mod", None), nn.Module):
        model = model._orig_mod  # type: ignore[assignment]
    if isinstance(model, DistributedDataParallel):
        return model.process_group
    weights = {name: layer.weight for name, layer in block_sparse_layers(model).items()}
    meshes = {name: _mesh_of(weight) for name, weight in weights.items() if is_sharded(weight)}
    if not meshes:
        return None
    (first, mesh), *others = meshes.items()
    split = any(layer.parts is not None for layer in block_sparse_layers(model).values())
    if split and mesh.size() < torch.distributed.get_world_size():
        raise TopologyError(
            f"{first} is split over {mesh.size()} of {torch.distributed.get_world_size()} processes, and who else "
            "trains this model is unknown; pass process_group=, the group of all of them"
        )
    differing = [name for name, other in others if _ranks(other) != _ranks(mesh)]
    if differing:
        raise TopologyError(
            f"{first} is sharded over the processes {_ranks(mesh)} and {differing[0]} over "
            f"{_ranks(meshes[differing[0]])}, so who moves blocks together is unknown; pass process_group="
        )
    return _group_of_mesh(mesh)


def _mesh_of(weight: Any) -> Any:
    return weight.device_mesh


def _ranks(mesh: Any) -> list[int]:
    """All processes of a device mesh."""
    ranks: list[int] = sorted(mesh.mesh.flatten().tolist())
    return ranks


def _group_of_mesh(mesh: Any) -> Any:
    """The process group of all dimensions of a mesh; its processes, and no others, must all ask for it."""
    if mesh.size() == torch.distributed.get_world_size():
        return None
    if mesh.ndim == 1:
        return mesh.get_group()
    return torch.distributed.new_group(_ranks(mesh), use_local_synchronization=True)


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model inside DistributedDataParallel, DataParallel and ``torch.compile``, in any order."""
    while True:
        if isinstance(model, DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def refuse_flat_parameters(model: nn.Module) -> None:
    """Refuse FSDP1, which keeps parameters as parts of flat tensors, in which no block can be found."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    flat = getattr(fsdp, "FullyShardedDataParallel", None)
    if flat is not None and any(isinstance(module, flat) for module in model.modules()):
        raise TopologyError(
            "the model is wrapped by FullyShardedDataParallel, whose flat parameters hold no whole blocks; "
            "use torch.distributed.fsdp.fully_shard"
        )


def check_can_shrink(layers: Mapping[str, BlockSparseLayer]) -> None:
    """Refuse to shrink parameters whose shape is fixed: in DDP's buckets, or in shards that cannot be cut anew."""
    replicated = set() if all(is_sharded(layer.weight) for layer in layers.values()) else _ddp_parameters()
    for name, layer in layers.items():
        must = f"{name} must shrink from {layer.present_blocks} to {layer.target_blocks} blocks"
        reason = layer.why_fixed()
        if reason:
            raise TopologyError(f"{must}, but {reason}; {REMEDY}")
        if id(layer.weight) in replicated:
            raise TopologyError(
                f"{must}, and DistributedDataParallel holds its weight at a fixed shape; wrap it with "
                'acf.data_parallel(model), use init="sparse", or wrap the model when it has reached its target'
            )


def check_same_weights(layers: Mapping[str, BlockSparseLayer], weights: Mapping[str, nn.Parameter]) -> None:
    """Refuse to move blocks in other tensors than ``weights``, which the optimizer steps."""
    for name, layer in layers.items():
        if layer.weight is not weights[name]:
            remedy = "attach again, with an optimizer of the new parameters"
            if is_sharded(weights[name]) and not is_sharded(layer.weight):
                remedy = "a forward pass under FSDP gathered it: call model.reshard() before optimizer.step()"
            raise TopologyError(f"{name}.weight is another tensor than the one that the optimizer steps; {remedy}")


def _ddp_parameters() -> set[int]:
    """Identities of all parameters whose gradients a DistributedDataParallel in this process reduces."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return set()
    classes = _with_subclasses(DistributedDataParallel)  # asking issubclass of every object takes ten times longer
    wrappers = [each for each in gc.get_objects() if type(each) in classes]
    return {identity for wrapper in wrappers for identity in bucketed_parameters(wrapper)}


def _with_subclasses(base: type) -> set[type]:
    subclasses: list[type] = base.__subclasses__()
    return {base}.union(*map(_with_subclasses, subclasses))


def data_parallel(model: nn.Module, process_group: Any = None, **options: Any) -> DistributedDataParallel:
    """``model`` in a DistributedDataParallel with ``options``, whose block-sparse layers may shrink.

    ``process_group``: the processes that replicate it, by default all.

    DistributedDataParallel fixes the shape of every gradient in its buckets. The weights of layers that have more
    blocks than their target (``init="dense"``) are therefore left out of the buckets; their gradients are averaged at
    the end of the backward pass, at the size they then have, unless ``no_sync()`` is on. Layers that start sparse are
    reduced in buckets. Build the optimizer and call `acf.attach` before or after.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise TopologyError(
            "there is no process group to replicate over; call torch.distributed.init_process_group first"
        )
    layers = {name: layer for name, layer in block_sparse_layers(model).items() if _will_shrink(layer)}
    names = [f"{prefix}.{name}" if prefix else name for prefix, layer in layers.items() for name in _tensors(layer)]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)  # type: ignore[no-untyped-call]
    wrapper = DistributedDataParallel(model, process_group=process_group, **options)
    weights = [layer.weight for layer in layers.values() if layer.weight.requires_grad]
    for layer in layers.values():
        for tensor in _tensors(layer).values():
            torch.distributed.broadcast(tensor, group=wrapper.process_group, group_src=0)
    average = _AfterBackward(wrapper, weights)
    for weight in weights:
        weight.register_post_accumulate_grad_hook(average.on_gradient)  # type: ignore[no-untyped-call]
    return wrapper


def bucketed_parameters(wrapper: DistributedDataParallel) -> set[int]:
    """Identities of the parameters whose gradients lie in the wrapper's buckets, at fixed shapes."""
    named = wrapper.module.named_parameters()
    return {id(parameter) for name, parameter in named if name not in wrapper.parameters_to_ignore}


def _will_shrink(layer: BlockSparseLayer) -> bool:
    return layer.present_blocks > layer.target_blocks


def _tensors(layer: BlockSparseLayer) -> Mapping[str, Tensor]:
    """The tensors whose shape changes when the layer shrinks, weight and topology, by their names in the layer."""
    return {"weight": layer.weight.data} | layer.topology._asdict()


class _AfterBackward:
    """Averages the gradients of ``weights`` over all processes at the end of a backward pass.

    One collective per layer, in the order of the layers and after those of the wrapper: all processes agree on that
    order, in whatever order their gradients were computed.
    """

    def __init__(self, wrapper: DistributedDataParallel, weights: list[nn.Parameter]) -> None:
        self.wrapper = wrapper
        self.weights = weights
        self.is_due = False

    def on_gradient(self, _: Tensor) -> None:
        """Queue the average for the end of the backward pass, at its first gradient."""
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
