"""Making a model sparse in place, whatever the kind of sparsity, and dense again."""

from collections.abc import Callable
from typing import Any

from torch import nn

from acf.errors import SparsityError, require_kind
from acf.gradients import GradientSparsity, sparsifier_of, uninstall
from acf.nn.attention import BlockSparseMultiheadAttention
from acf.nn.block_spec import BlockSparsity
from acf.nn.calibration import Batch
from acf.nn.fused_experts import fuse_experts
from acf.nn.nm_spec import NMSparsity
from acf.nn.plan import SparsityPlan, sparsify_by_plan
from acf.nn.replace import FilterFn, has_hooks, refuse_sharded, replace_layers
from acf.nn.separate_attention import join_attention
from acf.nn.sparse_layer import SparseLayer
from acf.nn.sparsify_blocks import forget_checkpoint_check, sparsify_blocks
from acf.nn.sparsify_gradients import sparsify_gradients
from acf.nn.sparsify_nm import sparsify_groups
from acf.nn.summary import SparsitySummary

# What `sparsify_` takes, and the function for it: (model, spec, filter_fn) -> summary. If it refuses, nothing changes.
SPARSIFIERS: dict[type, Callable[[nn.Module, Any, FilterFn | None], SparsitySummary]] = {
    BlockSparsity: sparsify_blocks,
    SparsityPlan: sparsify_by_plan,
    NMSparsity: sparsify_groups,
    GradientSparsity: sparsify_gradients,
}


def sparsify_(
    model: nn.Module,
    spec: BlockSparsity | SparsityPlan | NMSparsity | GradientSparsity,
    filter_fn: FilterFn | None = None,
    calibration: Batch | None = None,
) -> SparsitySummary:
    """Make the linear and convolution layers of ``model`` sparse, in place, as ``spec`` says.

    ``filter_fn(module, name)`` says which layers to take. Without it every layer is taken except grouped
    convolutions, layers whose weight is shared with another module, and what the kind of sparsity leaves dense; the
    returned summary lists them with the reason. If anything is refused, nothing is changed.

    `BlockSparsity` takes ``nn.Linear``, ``nn.Conv1d``, ``nn.Conv2d``, ``nn.Conv3d``, ``nn.ConvTranspose2d`` and the
    projections of ``nn.MultiheadAttention``, which ``filter_fn`` gets as linear layers (``attention.q_proj``). It
    leaves layers too thin to hold one block (an RGB stem, a 10-class head); a block that does not divide a wider layer
    is an error. Build the optimizer afterwards: the parameters are new.
    A `SparsityPlan` (`acf.plan`) is a `BlockSparsity` with a density for every layer.
    `NMSparsity` leaves the first convolution and layers that m does not divide; parameters stay the same.
    `GradientSparsity` takes every layer and composes with the other two, before or after them.

    ``calibration``: a batch on which a trained model is run once, as a tensor, a tuple of arguments or a dict of
    keyword arguments. A `BlockSparsity` then keeps the blocks of greatest norm of weight times input, so that a weight
    counts as much as what it adds to the output.
    """
    require_kind(model, nn.Module, "model", "pass the torch.nn.Module to make sparse")
    if calibration is not None:
        if not isinstance(spec, BlockSparsity) or spec.init == "dense":
            raise SparsityError(
                f"calibration ranks the blocks that BlockSparsity drops at once, and {spec!r} drops none of them now; "
                'pass a BlockSparsity with init="sparse", or no calibration'
            )
        return sparsify_blocks(model, spec, filter_fn, calibration=calibration)
    sparsifier = SPARSIFIERS.get(type(spec))
    if sparsifier is None:
        kinds = ", ".join(kind.__name__ for kind in SPARSIFIERS)
        raise SparsityError(f"{spec!r} is no kind of sparsity; pass one of {kinds}")
    return sparsifier(model, spec, filter_fn)


def densify_(model: nn.Module) -> nn.Module:
    """Turn every sparse layer of ``model`` back into a plain torch layer, in place; returns ``model``.

    Gradient sparsification ends too. Absent blocks, and weights that an N:M forward pass leaves out, become stored
    zeros. Weight parameters of sparse layers are new, so an optimizer must be built again.
    """
    require_kind(model, nn.Module, "model", "pass a torch.nn.Module that sparsify_ made sparse")
    layers = [module for module in model.modules() if isinstance(module, SparseLayer)]
    with_gradients = [module for module in model.modules() if sparsifier_of(module) is not None]
    if not layers and not with_gradients:
        raise SparsityError("the model has no sparse layer to densify; call sparsify_ first, or leave it as is")
    if model in layers or isinstance(model, BlockSparseMultiheadAttention):
        raise SparsityError(
            f"the model is itself a {type(model).__name__}, which cannot be replaced in place; call its to_dense()"
        )
    if layers:
        refuse_sharded(model, "load its full state_dict into a model that is not sharded, and densify_ that")
    hooked = next((layer for layer in layers if has_hooks(layer.weight)), None)
    if hooked is not None:
        raise SparsityError(
            f"the weight of a {type(hooked).__name__} has a hook on its gradient, which the dense weight would lose; "
            "remove the hook, and register it again after densify_"
        )
    for layer in with_gradients:
        uninstall(layer)
    replace_layers(model, {layer: layer.to_dense() for layer in layers})
    join_attention(model)
    fuse_experts(model)
    forget_checkpoint_check(model)
    return model
