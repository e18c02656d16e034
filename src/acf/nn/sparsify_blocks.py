"""Block sparsity: replacing a model's dense layers by block-sparse ones, in place."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from acf.errors import SparsityError
from acf.masks import LayerShape, StartTopology, kept_blocks
from acf.nn.attention import BlockSparseMultiheadAttention
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.block_spec import BlockSparsity
from acf.nn.calibration import Batch, input_norms
from acf.nn.freshness import are_fresh
from acf.nn.fused_experts import unfused_experts
from acf.nn.kind import LayerKind
from acf.nn.kinds import dense_kind_of
from acf.nn.replace import (
    FilterFn,
    choose_dense_layers,
    has_hooks,
    no_layer_at_all,
    replace_layers,
    require_container,
)
from acf.nn.separate_attention import list_whole, separated_attention
from acf.nn.summary import SparsitySummary, block_sparse_layers, summarize, summary_of
from acf.sparse import BlockLayout, frobenius_norms


def sparsify_blocks(
    model: nn.Module,
    spec: BlockSparsity,
    filter_fn: FilterFn | None,
    densities: Mapping[str, float] | None = None,
    blocks: Mapping[str, int] | None = None,
    calibration: Batch | None = None,
) -> SparsitySummary:
    """Keep the weight blocks of greatest norm, as `acf.sparsify_` does for a `BlockSparsity`.

    ``densities`` by layer take the place of the Spec's sparsity and distribution, and ``blocks`` that of its block
    for the layers that are named there. With a ``calibration`` batch, the norms are those of weights times the root
    mean square of the input they meet.
    """
    require_container(model, BlockSparseLayer)
    with separated_attention(model) as whole, unfused_experts(model):
        sparse, left_dense = _replace_chosen(model, spec, filter_fn, densities, blocks or {}, calibration)
    model.register_load_state_dict_pre_hook(check_checkpoint)  # type: ignore[no-untyped-call]
    layers = (summarize(name, layer, scale) for name, (layer, scale) in sparse.items())
    return summary_of(model, layers, list_whole(left_dense, whole))


def _replace_chosen(
    model: nn.Module,
    spec: BlockSparsity,
    filter_fn: FilterFn | None,
    densities: Mapping[str, float] | None,
    blocks: Mapping[str, int],
    calibration: Batch | None,
) -> tuple[dict[str, tuple[BlockSparseLayer, float]], dict[str, str]]:
    """The new sparse layers with the factor of their weights, and those left dense with the reason, by name."""
    chosen, left_dense = choose_layers(model, replace(spec, block=min(blocks.values(), default=spec.block)), filter_fn)
    if not chosen:
        raise SparsityError(_nothing_to_sparsify(model, spec, left_dense))
    _refuse_hooked({name: cast(Tensor, dense.weight) for name, (dense, _) in chosen.items()})
    layouts = {
        name: layout_of(name, dense, kind, replace(spec, block=blocks.get(name, spec.block)))
        for name, (dense, kind) in chosen.items()
    }
    shapes = [shape_of(name, dense, kind, layouts[name]) for name, (dense, kind) in chosen.items()]
    if densities is None:
        counts = dict(zip(chosen, kept_blocks(shapes, spec.sparsity, spec.distribution), strict=True))
    else:
        counts = {shape.name: max(1, round(densities[shape.name] * shape.block_count)) for shape in shapes}
    inputs = {} if calibration is None else input_norms(model, calibration, chosen, layouts)
    rescales = _rescales(spec, model, is_trained=calibration is not None)
    sparse = {
        name: _make_sparse(dense, kind, _Choice(layouts[name], counts[name], inputs.get(name)), spec)
        for name, (dense, kind) in chosen.items()
    }
    scales = {
        name: _keep_sum_of_squares(layer, chosen[name][1].weight_matrix(chosen[name][0])) if rescales else 1.0
        for name, layer in sparse.items()
    }
    replace_layers(model, {chosen[name][0]: layer for name, layer in sparse.items()})
    return {name: (layer, scales[name]) for name, layer in sparse.items()}, left_dense


def _rescales(spec: BlockSparsity, model: nn.Module, is_trained: bool) -> bool:
    """Whether to rescale what stays: as the spec says, else if all weights of the model are as they were initialised.

    Layers that stay dense are looked at, too: a trained convolution may look fresh where the classifier does not.
    """
    if spec.init == "dense" or spec.rescale is not None:
        return spec.init != "dense" and bool(spec.rescale)
    kinds = ((module, dense_kind_of(module)) for module in model.modules())
    known = ((module, kind) for module, kind in kinds if kind is not None and kind.is_plain(module))
    return not is_trained and are_fresh(kind.weight_matrix(module) for module, kind in known)


def _refuse_hooked(weights: Mapping[str, Tensor]) -> None:
    hooked = [name for name, weight in weights.items() if has_hooks(weight)]
    if hooked:
        raise SparsityError(
            f"{hooked[0]}.weight has a hook on its gradient ({len(hooked)} layers do), which its packed successor of "
            "another shape would lose; register it after sparsify_, or leave the layer out with filter_fn"
        )


def choose_layers(
    model: nn.Module, spec: BlockSparsity, filter_fn: FilterFn | None
) -> tuple[dict[str, tuple[nn.Module, LayerKind]], dict[str, str]]:
    """The layers to make sparse with their kinds, and those left dense with the reason, by name."""
    return choose_dense_layers(
        model, filter_fn, lambda module, kind: _why_thin(module, kind, spec), takes=lambda kind: True
    )


def _why_thin(module: nn.Module, kind: LayerKind, spec: BlockSparsity) -> str:
    """Why a layer is too thin for one block, or an empty string."""
    (outputs, inputs), (height, width) = kind.weight(module).shape[:2], spec.block_shape
    outputs //= kind.stacked(module)
    if outputs < height or inputs < width:
        return f"its {outputs} x {inputs} outputs x inputs are thinner than a {height} x {width} block"
    return ""


def layout_of(name: str, module: nn.Module, kind: LayerKind, spec: BlockSparsity) -> BlockLayout:
    """How the weight of a dense layer is cut into blocks; refuses a block that does not divide it."""
    outputs, inputs = kind.weight(module).shape[:2]
    height, width = spec.block_shape
    stacked = kind.stacked(module)
    output_name, input_name = kind.dimension_names
    for size, block, dimension in ((inputs, width, input_name), (outputs // stacked, height, output_name)):
        if size % block:
            raise SparsityError(
                f"block {block} does not divide {dimension} {size} of layer {name!r}; "
                "use a block that does, or leave the layer out with filter_fn"
            )
    return kind.layout(module, spec.block_shape)


def shape_of(name: str, module: nn.Module, kind: LayerKind, layout: BlockLayout) -> LayerShape:
    """A dense layer as a distribution of densities sees it."""
    outputs, *rest = kind.weight(module).shape
    return LayerShape(name, (outputs // layout.stacked, *rest), layout.block_count, layout.stacked)


class _Choice(NamedTuple):
    """Which blocks of a layer stay: how many, and the norms of its inputs that weigh them, if known."""

    layout: BlockLayout
    kept_blocks: int
    input_norms: Tensor | None


def _make_sparse(dense: nn.Module, kind: LayerKind, choice: _Choice, spec: BlockSparsity) -> BlockSparseLayer:
    """The sparse layer with the blocks that the topology of ``spec`` chooses by l2 norm; all for a dense start."""
    layout, count, inputs = choice
    balanced, starts_dense = spec.distribution == "balanced", spec.init == "dense"
    matrix = kind.weight_matrix(dense)
    # On the meta device nothing can be ranked: any mask of this many blocks gives the shapes, a checkpoint the places.
    grid = (layout.grid_rows, layout.grid_cols)
    weighed = matrix if inputs is None else matrix.float() * _along_inputs(inputs.to(matrix.device), kind)
    norms = torch.ones(grid, device="cpu") if matrix.is_meta else layout.block_norms(weighed)
    start = StartTopology(spec.topology, layout.stacked, taps=prod(kind.weight(dense).shape[2:]))
    layer = kind.block_sparse(dense, layout, start.mask(norms, layout.block_count if starts_dense else count, balanced))
    layer.start = start
    layer.target_blocks, layer.balanced, layer.starts_dense = count, balanced, starts_dense
    layer.rescale = spec.rescale is not False
    layer.weight.requires_grad_(cast(nn.Parameter, dense.weight).requires_grad)
    return layer.train(dense.training)


def _along_inputs(norms: Tensor, kind: LayerKind) -> Tensor:
    """Input norms as they meet the weight matrix: along its columns, or its rows where it is a transposed one."""
    return norms.unsqueeze(1) if kind.transposed else norms


@torch.no_grad()
def _keep_sum_of_squares(layer: BlockSparseLayer, matrix: Tensor) -> float:
    """Scale the blocks that stay so that their squares sum to those of the dense ``matrix``; the factor.

    The output of a layer has the variance of its inputs times that sum, over the number of outputs. For blocks of
    equal norm the factor is density ** -0.5; single weights, of which the greatest stay, need less.
    """
    kept = 0.0 if matrix.is_meta else float(frobenius_norms(layer.weight, dim=(0, 1, 2)))
    if layer.density == 1.0 or kept == 0.0:
        return 1.0
    factor = float(frobenius_norms(matrix, dim=(0, 1))) / kept
    layer.weight.mul_(factor)
    return factor


def check_checkpoint(model: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Refuse a checkpoint that does not fit any one sparse layer of ``model`` before the first is loaded."""
    for name, layer in block_sparse_layers(model).items():
        layer.check_state(state_dict, f"{prefix}{name}.")
    for name, module in model.named_modules():
        if isinstance(module, BlockSparseMultiheadAttention):
            module.check_state(state_dict, f"{prefix}{name}.")


def forget_checkpoint_check(model: nn.Module) -> None:
    """Let ``model`` load any checkpoint again, once no layer of it is block-sparse."""
    for key, hook in list(model._load_state_dict_pre_hooks.items()):
        if getattr(hook, "hook", hook) is check_checkpoint:
            del model._load_state_dict_pre_hooks[key]


def _nothing_to_sparsify(model: nn.Module, spec: BlockSparsity, left_dense: dict[str, str]) -> str:
    if block_sparse_layers(model):
        return "the model is block-sparse already; call densify_ first to sparsify it anew"
    if not left_dense:
        return no_layer_at_all(model)
    name, reason = next(iter(left_dense.items()))
    return (
        f"no layer can hold blocks of {spec.block!r}: {name!r} stays dense because {reason} "
        f"({len(left_dense)} layers looked at); use a smaller block or another filter_fn"
    )
