"""Finding the batch norms that read a block-sparse convolution, and letting them share its pass over the output."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import fx, nn

from acf.errors import SparsityError
from acf.nn.batch_norm import FusedBatchNorm2d
from acf.nn.conv2d import BlockSparseConv2d
from acf.nn.replace import refuse_sharded

FUSABLE_NORMS = (nn.BatchNorm2d, FusedBatchNorm2d)


def fuse_batch_norms_(model: nn.Module, pairs: Iterable[tuple[str, str]] | None = None) -> tuple[str, ...]:
    """Let batch norms take their statistics from the block-sparse convolution before them, in place; their names.

    In training a batch norm reads its input once for mean and variance, and once to normalise it. A fused one does the
    former in the convolution's kernel. That holds in compiled graphs: on a GPU in bfloat16 or float16 (autocast) with
    blocks of 32, 64 or 128, on a CPU for `torch.channels_last` inputs in float32 or bfloat16 with blocks of 8 to 64;
    elsewhere both layers run as before. Names, parameters, buffers and checkpoints stay. Call it after
    `acf.sparsify_`, after `SyncBatchNorm.convert_sync_batchnorm` and before `torch.compile`.

    Pairs are found by `torch.fx`: an `nn.BatchNorm2d` that reads a block-sparse `Conv2d` which nothing else reads. For
    a model that cannot be traced, ``pairs`` names them: ``[("layer1.0.conv1", "layer1.0.bn1"), ...]``. A norm whose
    input is not the unchanged output of a convolution takes its own statistics.
    """
    refuse_sharded(model, "call fuse_batch_norms_ before fully_shard")
    found = _traced_pairs(model) if pairs is None else [_checked(model, *pair) for pair in pairs]
    for conv_name, norm_name in found:
        model.get_submodule(conv_name).feeds_batch_norm = True  # type: ignore[assignment]
        # Another class of the same object: optimizers, hooks and other owners keep the norm they know.
        model.get_submodule(norm_name).__class__ = FusedBatchNorm2d
    return tuple(norm_name for _, norm_name in found)


def _traced_pairs(model: nn.Module) -> list[tuple[str, str]]:
    """Names of convolutions and the norms that alone read them, in the order of the forward pass."""
    layers = dict(model.named_modules())
    if not any(type(layer) is BlockSparseConv2d for layer in layers.values()):
        return []
    graph = _traced(model)
    calls = [node for node in graph.nodes if node.op == "call_module"]
    uses = Counter(layers[str(node.target)] for node in calls)

    def is_once(node: fx.Node, kinds: tuple[type[nn.Module], ...]) -> bool:
        layer = layers.get(str(node.target)) if node.op == "call_module" else None
        return type(layer) in kinds and uses[layer] == 1

    return [
        (str(node.args[0].target), str(node.target))
        for node in calls
        if is_once(node, FUSABLE_NORMS)
        and len(node.args) == 1
        and isinstance(node.args[0], fx.Node)
        and is_once(node.args[0], (BlockSparseConv2d,))
        and len(node.args[0].users) == 1
    ]


def _traced(model: nn.Module) -> fx.Graph:
    """The model's operations in training, where statistics are taken."""
    try:
        with _in_training(model):
            return fx.Tracer().trace(model)
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise SparsityError(
            f"torch.fx cannot trace {type(model).__name__} ({reason}), so its batch norms are not found; name them: "
            'fuse_batch_norms_(model, pairs=[("conv1", "bn1"), ...])'
        ) from error


@contextmanager
def _in_training(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.train()
        yield
    finally:
        for module, training in modes:
            module.training = training


def _checked(model: nn.Module, conv_name: str, norm_name: str) -> tuple[str, str]:
    """The pair, if both layers exist and are of the kinds that can be fused."""
    wanted = (
        (conv_name, (BlockSparseConv2d,), "a block-sparse Conv2d"),
        (norm_name, FUSABLE_NORMS, "an nn.BatchNorm2d"),
    )
    for name, kinds, text in wanted:
        layer = dict(model.named_modules()).get(name)
        if type(layer) not in kinds:
            found = "no layer of the model" if layer is None else f"a {type(layer).__name__}"
            raise SparsityError(f"{name!r} is {found}, not {text}; pairs are (convolution, batch norm) by name")
    return conv_name, norm_name
