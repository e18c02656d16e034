"""Checkpoints in which every process writes its own part: `torch.distributed.checkpoint` (DCP) for sparse models.

DCP loads into tensors of the saved shape. So before it loads a dense start, the layers get the numbers of blocks that
the checkpoint's metadata name. The controller's state, whose shapes change from step to step, is kept as bytes.
"""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from acf.errors import AcfError, FileError, TopologyError
from acf.nn import BlockSparseLayer, block_sparse_layers
from acf.nn.block_layer import SAVED_TOPOLOGY
from acf.sparse import BlockTopology, is_sharded
from acf.train.controller import TopologyController
from acf.train.controller_state import check_version
from acf.train.distributed import process_count, sum_over_processes, unwrapped
from acf.train.optimizers import Optimizer, check_held, listed

VERSION = 1
"""Format of what stands beside the tensors of model and optimizer."""

HEADER = "acf"


def save_sharded(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    topology: TopologyController | None = None,
    **parts: Any,
) -> None:
    """Save a training run with `torch.distributed.checkpoint` in the folder ``path``; all processes call this.

    Every process writes the shards it holds. ``topology`` is the controller of `acf.attach`; ``parts`` are numbers,
    strings, tensors and containers of these, the same in all processes. Model and optimizer are under the keys
    ``model`` and ``optimizer``, as ``get_state_dict`` of `torch.distributed.checkpoint.state_dict` gives them.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save

    _check_optimizers(model, listed(optimizer))
    model_state, optimizer_state = get_state_dict(model, listed(optimizer))
    header = {"version": VERSION, "topology": None if topology is None else _whole_state(topology), "parts": parts}
    buffer = io.BytesIO()
    torch.save(header, buffer)
    state = {"model": model_state, "optimizer": optimizer_state, HEADER: buffer.getvalue()}
    try:
        with _single_process_allowed():
            save(state, checkpoint_id=str(path))
    except CheckpointException as error:
        failures = [str(failure).splitlines()[0] for failure, _ in error.failures.values()]
        raise FileError(
            f"{path} cannot be written ({failures[0]}); free some space, or pass a folder you may write to: older "
            "checkpoints are kept"
        ) from error


def load_sharded(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    topology: TopologyController | None = None,
) -> dict[str, Any]:
    """Load what `save_sharded` wrote, in any number of processes; returns the other parts.

    The model is built, made sparse and sharded as for the run that saved, and ``topology`` attached to it. Layers of a
    dense start get as many blocks as they had. Nothing in the folder is executed; a part that has changed since it was
    written is refused.
    """
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    optimizers = listed(optimizer)
    _check_optimizers(model, optimizers)
    for each in optimizers:  # torch sets up the state of an optimizer only where no gradient is left
        each.zero_grad(set_to_none=True)
    if _match_block_counts(unwrapped(model), Path(path)):
        for each in optimizers:
            each.state.clear()
    model_state, optimizer_state = get_state_dict(model, optimizers)
    state: dict[str, Any] = {"model": model_state, "optimizer": optimizer_state, HEADER: b""}
    with _single_process_allowed():
        _load(state, path)
    with _as_file_errors(path):
        header = _header(state[HEADER])
        check_version(header["version"], VERSION, str(path))
        set_state_dict(model, optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    if topology is not None:
        _load_topology(topology, header["topology"], path)
    parts: dict[str, Any] = header["parts"]
    return parts


def _load(state: dict[str, Any], path: str | Path) -> None:
    """Let DCP fill ``state`` from the folder."""
    from torch.distributed.checkpoint.state_dict_loader import load

    from acf.train.sharded_reader import CheckedReader, PlainPlanner

    with _as_file_errors(path):
        load(state, storage_reader=CheckedReader(str(path)), planner=PlainPlanner())


def _header(content: bytes) -> dict[str, Any]:
    header = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(header, dict) or set(header) != {"version", "topology", "parts"}:
        raise ValueError("what stands beside the tensors is no header of save_sharded")
    return header


@contextmanager
def _as_file_errors(path: str | Path) -> Iterator[None]:
    """One line for what DCP raises on a folder that it cannot read; its own error is no `Exception`."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except AcfError:
        raise
    except (Exception, CheckpointException) as error:
        causes = [each[0] for each in error.failures.values()] if isinstance(error, CheckpointException) else [error]
        reason = (" ".join(str(causes[0]).split()) or type(causes[0]).__name__)[:300]
        raise FileError(
            f"{path} cannot be loaded as a distributed checkpoint ({reason}); take an older one, or a whole copy"
        ) from error


@contextmanager
def _single_process_allowed() -> Iterator[None]:
    """Silence torch's warning that there is no process group: one process is a number of processes, too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def _check_optimizers(model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Refuse optimizers of another model."""
    layers = block_sparse_layers(unwrapped(model)).items()
    check_held({name: layer.weight for name, layer in layers if layer.weight.requires_grad}, optimizers)


def _whole_state(topology: TopologyController) -> dict[str, Any]:
    """The controller's state with scores summed over all processes, each of which scored its own batches."""
    state = topology.state_dict()
    for name, layer in state["layers"].items():
        if layer["growth_squares"] is not None:
            layer["growth_squares"] = sum_over_processes(layer["growth_squares"].clone(), topology.process_group)
            layer["growth_scale"] = _growth_scale(topology, name)
    return state


def _growth_scale(topology: TopologyController, name: str) -> int:
    """Summed squared norms of a layer over those of one process that computes the same averaged gradient.

    Each of d data-parallel processes scores a gradient that averaging divides by d. A layer that is whole in processes
    which split others is scored by all of them alike.
    """
    split = [x.parts.count for x in topology.layers.values() if x.parts is not None and is_sharded(x.weight)]
    tensor_parallel = max(split, default=1)
    data_parallel = process_count(topology.process_group) // tensor_parallel
    return data_parallel**2 * (tensor_parallel if topology.layers[name].parts is None else 1)


def _load_topology(topology: TopologyController, state: dict[str, Any] | None, path: str | Path) -> None:
    if state is None:
        raise TopologyError(f"{path} holds no topology state; save it with save_sharded(..., topology=controller)")
    is_first = process_count(topology.process_group) == 1 or torch.distributed.get_rank(topology.process_group) == 0
    for name, layer in state["layers"].items():
        saved_scale = layer.pop("growth_scale", 1)
        if layer["growth_squares"] is not None and name in topology.layers:
            # The sums are whole, so one process of the group adds them.
            layer["growth_squares"] *= _growth_scale(topology, name) / saved_scale if is_first else 0.0
    topology.load_state_dict(state)


def _match_block_counts(model: nn.Module, path: Path) -> bool:
    """Give every layer as many blocks as its weight has in the checkpoint; whether any had another number."""
    sizes = _saved_sizes(path)
    layers = block_sparse_layers(model)
    for name, layer in layers.items():
        size = sizes.get(f"model.{name}.weight")
        if size is None or not layer.could_hold(size):
            raise TopologyError(
                f"{path} has {'no' if size is None else list(size)} {name}.weight, this layer packs "
                f"{list(layer.weight.shape)} (blocks, block height, block width); sparsify_ the model with the "
                "BlockSparsity of the checkpoint, then load"
            )
    _check_places(layers, sizes, path)
    resized = [name for name, layer in layers.items() if layer.present_blocks != sizes[f"model.{name}.weight"][0]]
    for name in resized:
        _hold(layers[name], sizes[f"model.{name}.weight"][0])
    return bool(resized)


def _check_places(layers: dict[str, BlockSparseLayer], sizes: dict[str, tuple[int, ...]], path: Path) -> None:
    """Let layers that are split over processes refuse the places of their blocks, before anything is loaded."""
    split = {name: layer for name, layer in layers.items() if layer.parts is not None and is_sharded(layer.weight)}
    keys = [f"{name}.{each}" for name in split for each in SAVED_TOPOLOGY]
    places = {key: torch.zeros(sizes[f"model.{key}"], dtype=torch.int32) for key in keys}
    if not places:
        return
    _load({"model": places}, path)
    for name, layer in split.items():
        rows, cols = (places[f"{name}.{each}"] for each in SAVED_TOPOLOGY)
        layer.check_slots(rows, cols, f"{name}.weight", sortable=False)


def _saved_sizes(path: Path) -> dict[str, tuple[int, ...]]:
    from acf.train.sharded_reader import CheckedReader

    try:
        saved = CheckedReader(str(path)).read_metadata().state_dict_metadata
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except Exception as error:  # torch's reader fails in many ways on what is no checkpoint
        raise FileError(f"{path} holds no distributed checkpoint; pass a folder of save_sharded") from error
    return {name: tuple(entry.size) for name, entry in saved.items() if hasattr(entry, "size")}


def _hold(layer: BlockSparseLayer, count: int) -> None:
    """Hold the first ``count`` blocks; which ones it really holds, and their weights, are loaded next."""
    places = torch.arange(count, device=layer.block_rows.device)
    grid_cols = layer.layout.grid_cols
    topology = BlockTopology.unchecked(layer.layout, places // grid_cols, places % grid_cols)
    weight = layer.weight
    layer.replace_blocks(torch.zeros(count, *layer.block_shape, dtype=weight.dtype, device=weight.device), topology)
