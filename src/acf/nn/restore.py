"""`acf.load_sparse`: a sparse model from a file, into a dense model or one that the file describes."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from acf.errors import TopologyError
from acf.gradients import GradientSparsifier, GradientSparsity, install
from acf.gradients.sparsifier import CHILD_NAME
from acf.nn.block_layer import SAVED_TOPOLOGY, BlockSparseLayer
from acf.nn.fused_experts import unfused_experts
from acf.nn.kind import LayerKind
from acf.nn.kinds import dense_kind_of
from acf.nn.nm_spec import NMSparsity
from acf.nn.replace import replace_layers
from acf.nn.saved import SavedModel, read_saved
from acf.nn.separate_attention import separated_attention
from acf.nn.sparse_layer import SparseLayer
from acf.nn.sparsify_blocks import check_checkpoint
from acf.sparse import BlockLayout, BlockTopology


def load_sparse(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """A sparse model from a file of `acf.save_sparse`: layers, topology and weights are those that were saved.

    ``model`` is a dense model of the class that was saved, in any state or on the meta device; it is made sparse in
    place and returned. Its tensors keep their device and dtype, those of the meta device get the file's. Without it,
    the model is built from the file, in evaluation mode on the CPU: that needs nothing but the file where the model is
    an ``nn.Sequential`` of torch's own modules, and is refused where it has code of its own.

    ``path`` may be a folder of Hugging Face's ``save_pretrained``, which needs a ``model``. If anything does not fit,
    ``model`` stays as it is.
    """
    path = Path(path)
    saved = read_saved(path)
    built = saved.build(path).eval() if model is None else model
    with separated_attention(built, lambda name: f"{name}.q_proj.weight" in saved.tensors), unfused_experts(built):
        _restore(built, saved, path)
    if model is None:
        _tie(built, saved.aliases)
    return built


def _restore(built: nn.Module, saved: SavedModel, path: Path) -> None:
    """Make layers of the dense model sparse, and load the saved tensors."""
    tensors = _tensors_for(built, saved)
    _check_fits(built, saved, tensors, path)
    sparse = {name: _block_sparse(built, name, saved) for name in saved.blocks}
    masked = {name: _masked(built, name, saved) for name in saved.groups}
    replace_layers(built, {built.get_submodule(name): layer for name, layer in {**sparse, **masked}.items()})
    for name, entry in saved.gradients.items():
        install(built.get_submodule(name), _gradient_sparsifier(entry, built.get_submodule(name)))
    if sparse:
        built.register_load_state_dict_pre_hook(check_checkpoint)  # type: ignore[no-untyped-call]
    on_meta = any(tensor.is_meta for tensor in built.state_dict().values())
    built.load_state_dict(tensors, assign=on_meta)


def _block_sparse(model: nn.Module, name: str, saved: SavedModel) -> BlockSparseLayer:
    """The sparse layer in the place of the dense one called ``name``; a checked layer, so nothing here fails."""
    entry, dense = saved.blocks[name], model.get_submodule(name)
    kind, layout = _kind_of(dense), _layout_of(dense, saved.tensors[f"{name}.weight"])
    topology = BlockTopology.build(layout, *(saved.tensors[f"{name}.{each}"] for each in SAVED_TOPOLOGY))
    layer = kind.block_sparse(dense, layout, topology.mask(layout))
    layer.target_blocks = entry.get("target_blocks", layer.present_blocks)
    layer.balanced, layer.starts_dense = entry.get("balanced", False), entry.get("starts_dense", False)
    layer.weight.requires_grad_(kind.weight(dense).requires_grad)
    return layer.train(dense.training)


def _masked(model: nn.Module, name: str, saved: SavedModel) -> SparseLayer:
    dense = model.get_submodule(name)
    masked_class = _kind_of(dense).nm
    assert masked_class is not None  # the kind was checked
    return masked_class(dense, NMSparsity(**saved.groups[name]["spec"])).train(dense.training)


def _gradient_sparsifier(entry: dict[str, Any], layer: nn.Module) -> GradientSparsifier:
    sparsifier = GradientSparsifier(GradientSparsity(**entry["spec"]))
    sparsifier.seed = entry["seed"]
    device = next(layer.parameters()).device
    return sparsifier.to("cpu" if device.type == "meta" else device).train(layer.training)


def _tensors_for(model: nn.Module, saved: SavedModel) -> dict[str, Tensor]:
    """The saved tensors under every name: those the file says are the same, and those that ``model`` ties."""
    unknown = next((stored for stored in saved.aliases.values() if stored not in saved.tensors), None)
    if unknown is not None:
        raise TopologyError(f"the file names {unknown}, which it does not hold; save the model anew")
    tensors = {**saved.tensors, **{name: saved.tensors[stored] for name, stored in saved.aliases.items()}}
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    for tied in names.values():
        stored = next((name for name in tied if name in tensors), None)
        if stored is not None:
            tensors |= {name: tensors[stored] for name in tied if name not in tensors}
    return tensors


def _tie(model: nn.Module, aliases: dict[str, str]) -> None:
    """Let the parameters that were one when saved be one again."""
    for name, stored in aliases.items():
        (parent, leaf), (owner, key) = (each.rpartition(".")[::2] for each in (name, stored))
        parameters = model.get_submodule(parent)._parameters
        if leaf in parameters:
            parameters[leaf] = model.get_submodule(owner)._parameters[key]


def _check_fits(model: nn.Module, saved: SavedModel, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse a file that ``model`` cannot hold, by the first name that differs."""
    if any(isinstance(module, SparseLayer) for module in model.modules()):
        raise TopologyError("the model is sparse already, and the file says what becomes sparse; pass a dense model")
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name in [*saved.blocks, *saved.groups]:
        _check_layer(model, name, saved, path)
    for name in saved.blocks:
        expected[f"{name}.weight"] = tuple(tensors[f"{name}.weight"].shape)
        count = expected[f"{name}.weight"][:1]
        expected |= {f"{name}.{each}": count for each in SAVED_TOPOLOGY}
    for name in saved.gradients:
        expected |= {f"{name}.{CHILD_NAME}.{each}": () for each in ("threshold", "sparsity", "step")}
    actual = {name: tuple(value.shape) for name, value in tensors.items()}
    differing = [name for name in [*expected, *actual] if expected.get(name) != actual.get(name)]
    if differing:
        name = differing[0]
        shapes = ("nothing" if each is None else list(each) for each in (actual.get(name), expected.get(name)))
        raise TopologyError(
            "{} has {} as {} and this model {}; pass a dense model of the class and sizes that were saved".format(
                path, *(next(shapes), name, next(shapes))
            )
        )
    _check_dtypes(model, tensors, path)


def _check_dtypes(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse integers in place of weights, and numbers with fractions in place of block coordinates."""
    state = model.state_dict()
    for name, value in tensors.items():
        is_float = name not in state or state[name].is_floating_point()
        is_float &= not name.endswith(tuple(f".{each}" for each in (*SAVED_TOPOLOGY, f"{CHILD_NAME}.step")))
        if value.is_floating_point() != is_float:
            raise TopologyError(
                f"{path} has {name} as {str(value.dtype).removeprefix('torch.')}, which is "
                f"{'no' if is_float else 'a'} floating-point type; save the model anew"
            )


def _check_layer(model: nn.Module, name: str, saved: SavedModel, path: Path) -> None:
    """Refuse a layer that the model lacks, or has in another kind or size."""
    remedy = "pass a dense model of the class and sizes that were saved"
    try:
        dense = model.get_submodule(name)
    except AttributeError:
        raise TopologyError(f"{path} has a sparse layer {name}, which this model does not have; {remedy}") from None
    kind = dense_kind_of(dense)
    if kind is None or not kind.is_plain(dense) or (name in saved.groups and kind.nm is None):
        raise TopologyError(f"{name} is a {type(dense).__name__}, which {path} has as a sparse layer; {remedy}")
    if name not in saved.blocks:
        return
    missing = [each for each in ("weight", *SAVED_TOPOLOGY) if f"{name}.{each}" not in saved.tensors]
    if missing:
        raise TopologyError(f"{path} lacks {name}.{missing[0]}; save the model anew")
    weight = saved.tensors[f"{name}.weight"]
    if weight.dim() != 3 or any(
        size % block for size, block in zip(_outputs_inputs(dense), kind.block_shape(weight), strict=True)
    ):
        outputs, inputs = _outputs_inputs(dense)
        raise TopologyError(
            f"{path} packs {name}.weight as {list(weight.shape)} (blocks, block height, block width), which does not "
            f"fit {outputs} x {inputs} outputs x inputs; {remedy}"
        )
    layout = _layout_of(dense, weight)
    if saved.blocks[name].get("shape", [layout.rows, layout.cols]) != [layout.rows, layout.cols]:
        raise TopologyError(
            f"{path} has {name} as a matrix of {saved.blocks[name]['shape']}, this model of "
            f"{[layout.rows, layout.cols]}; {remedy}"
        )
    BlockTopology.build(layout, *(saved.tensors[f"{name}.{each}"] for each in SAVED_TOPOLOGY))


def _kind_of(dense: nn.Module) -> LayerKind:
    kind = dense_kind_of(dense)
    assert kind is not None  # the layer was checked
    return kind


def _outputs_inputs(dense: nn.Module) -> tuple[int, int]:
    outputs, inputs = _kind_of(dense).weight(dense).shape[:2]
    return outputs // _kind_of(dense).stacked(dense), inputs


def _layout_of(dense: nn.Module, packed: Tensor) -> BlockLayout:
    kind = _kind_of(dense)
    return kind.layout(dense, kind.block_shape(packed))
