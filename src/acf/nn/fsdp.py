"""Packed weights under FSDP2 (``fully_shard``): finding what FSDP keeps of a weight, and giving it another shape.

FSDP fixes the shape of a parameter when it shards it, and has no public call to change it. What it derives from the
shape belongs to one object per parameter, which can shard a tensor anew; the parameter that the optimizer holds stays
the same object.
"""

import gc
import inspect
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.sparse import is_sharded

REMEDY = 'use init="sparse", or call fully_shard when the model has reached its target'

_NEEDED = ("_init_sharded_param", "_module_info", "_setattr_on_modules", "mesh_info", "device", "all_gather_outputs")


_FOUND: "WeakKeyDictionary[nn.Module, Any]" = WeakKeyDictionary()


def fsdp_parameter(layer: nn.Module) -> Any:
    """What FSDP keeps of ``layer.weight``; None if FSDP does not hold it.

    A layer knows nothing of the FSDP modules around it, so all of them are looked for, once.
    """
    if layer not in _FOUND:
        try:
            from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
        except ImportError:
            return None
        for each in gc.get_objects():
            if type(each) is FSDPParam and each._module_info.param_name == "weight":
                _FOUND[each._module_info.module] = each
    return _FOUND.get(layer)


def why_fixed(layer: nn.Module) -> str:
    """Why the sharded weight of ``layer`` cannot change its shape, or an empty string."""
    held = fsdp_parameter(layer)
    if held is None:
        return "its weight is a DTensor that fully_shard did not make"
    missing = [name for name in _NEEDED if not hasattr(held, name)]
    if missing:
        return f"FSDP of torch {torch.__version__} is not known (its parameters have no {missing[0]})"
    if held.sharded_param is not layer.weight:
        return "its weight is not sharded at the moment; call reshard() on the model before the optimizer step"
    if held.is_dtensor:
        return "fully_shard got a weight that was a DTensor already"
    if getattr(held.fsdp_placement, "dim", 0) != 0:
        return f"its weight is sharded as {held.fsdp_placement}, which cuts through blocks"
    return ""


@torch.no_grad()
def reshard_weight(layer: nn.Module, packed: Tensor) -> None:
    """Let ``layer.weight``, which FSDP shards, hold the whole ``packed`` tensor of another number of blocks.

    All processes call this with the same tensor. The gradient is dropped; state of the optimizer is the caller's.
    """
    reason = why_fixed(layer)
    if reason:
        raise TopologyError(f"a weight under FSDP must change its number of blocks, but {reason}; {REMEDY}")
    held, weight = fsdp_parameter(layer), cast(nn.Parameter, layer.weight)
    whole = nn.Parameter(packed.to(held.device).contiguous(), requires_grad=weight.requires_grad)
    known = {"param": whole, "device": held.device, "shard_placement_fn": None, "mesh_info": held.mesh_info}
    wanted = inspect.signature(held._init_sharded_param).parameters
    held._init_sharded_param(**{name: known[name] for name in wanted})
    become(weight, held.sharded_param)
    held.sharded_param = weight
    held._setattr_on_modules(weight)
    if getattr(held, "post_forward_mesh_info", None):
        held._init_sharded_post_forward_param_metadata(whole)
    held.all_gather_outputs = []
    if hasattr(held, "_unsharded_param"):
        del held._unsharded_param
    if not is_sharded(weight) or weight.shape != packed.shape:
        raise AssertionError(f"FSDP of torch {torch.__version__} did not shard {list(packed.shape)} anew")


def become(parameter: Any, other: Any) -> None:
    """Let the DTensor ``parameter`` hold what ``other`` holds, at its shape; hooks on it stay."""
    parameter.grad = None
    # Autograd drops the accumulation node of the old shape when the dtype changes, not when the shape does.
    parameter.data = other.data.to(torch.float16 if other.dtype is torch.bfloat16 else torch.bfloat16)
    parameter.data = other.data
    parameter._local_tensor, parameter._spec = other._local_tensor, other._spec
