"""`acf.save_sparse` and `acf.load_sparse`: a sparse model in one safetensors file.

The tensors are those of the ``state_dict``, under the same names. The metadata says, as JSON, what each sparse layer
is, and how the model is built where that can be said in plain values. Nothing is ever unpickled.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acf.checksums import CHECKSUMS_KEY, Part, check_parts, checksums
from acf.errors import FileError, MissingDependencyError, TopologyError
from acf.files import replacing
from acf.gradients import GradientSparsifier, GradientSparsity
from acf.nn.block_layer import BlockSparseLayer
from acf.nn.nm_layer import NMLayer
from acf.nn.nm_spec import NMSparsity
from acf.nn.structure import build, describe
from acf.schema import read_value
from acf.sparse import is_sharded

VERSION = 1
"""Format of the file."""

METADATA_KEY = "acf_sparse"


@dataclass(frozen=True)
class SavedModel:
    """What a file holds: tensors by name, and what `describe_layers` says of the sparse layers.

    ``aliases``: names of tensors that are stored under another name. ``model``: the class of the model, and
    ``structure`` how it is built, where its modules are all torch's own.
    """

    tensors: dict[str, Tensor]
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    gradients: dict[str, dict[str, Any]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    model: str = ""
    structure: dict[str, Any] | None = None

    def build(self, path: Path) -> nn.Module:
        """The dense model on the meta device; refused where the file cannot say how it is built."""
        if self.structure is None:
            raise FileError(
                f"{path} holds the weights of a {self.model or 'model'}, whose code is no part of a file; "
                "pass a dense model of that class: load_sparse(path, model)"
            )
        try:
            return build(self.structure)
        except Exception as error:  # torch's constructors fail in many ways on what is not theirs
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise FileError(f"{path} describes no model of torch's modules ({reason}); pass the dense model") from error


def save_sparse(model: nn.Module, path: str | Path) -> None:
    """Write weights, topology and the description of every sparse layer of ``model`` to a safetensors file.

    `acf.load_sparse` reads it. The file replaces an older one atomically. Optimizer and policy are not in it: that is
    what `acf.save_checkpoint` is for.
    """
    safetensors = _safetensors()
    tensors, aliases = _plain_tensors(model)
    header = json.dumps(
        {
            "version": VERSION,
            **describe_layers(model),
            "aliases": aliases,
            "model": type(model).__name__,
            "structure": describe(model),
        }
    )
    metadata = {METADATA_KEY: header, CHECKSUMS_KEY: checksums(_parts(header, tensors)), "format": "pt"}
    try:
        with replacing(Path(path)) as temporary:
            safetensors.save_file(tensors, str(temporary), metadata=metadata)
    except import_module("safetensors").SafetensorError as error:
        reason = str(error).splitlines()[0]
        raise FileError(f"{path} cannot be written ({reason}); free some space, then call it again") from error
    except KeyError as error:  # how safetensors refuses a dtype
        dtype = error.args[0]
        named = next((name for name, tensor in tensors.items() if tensor.dtype == dtype), "a tensor")
        raise FileError(
            f"{named} is {dtype}, which this safetensors does not hold; save another dtype, or install a newer one"
        ) from error


def describe_layers(model: nn.Module) -> dict[str, dict[str, Any]]:
    """What the sparse layers are beside their tensors, by name, as plain values."""
    blocks, groups, gradients = {}, {}, {}
    for name, module in model.named_modules():
        if isinstance(module, BlockSparseLayer):
            blocks[name] = {
                "kind": module.kind_name,
                "shape": [module.layout.rows, module.layout.cols],
                "target_blocks": module.target_blocks,
                "balanced": module.balanced,
                "starts_dense": module.starts_dense,
            }
        elif isinstance(module, NMLayer):
            groups[name] = {"kind": module.kind_name, "spec": asdict(module.spec)}
        elif isinstance(module, GradientSparsifier):
            gradients[name.rpartition(".")[0]] = {"seed": module.seed, "spec": asdict(module.spec)}
    return {"blocks": blocks, "groups": groups, "gradients": gradients}


def read_saved(path: Path) -> SavedModel:
    """Read a file of `save_sparse`, or a folder of Hugging Face's ``save_pretrained``, which says less."""
    files = [path]
    if os.path.isdir(path):
        files = sorted(path.glob("model*.safetensors"))
        if not files:
            raise FileError(f"{path} holds no model*.safetensors; pass a folder of save_pretrained, or a file")
    tensors: dict[str, Tensor] = {}
    header: dict[str, Any] = {}
    for file in files:
        more, metadata = _read_file(file)
        check_parts(file, metadata.get(CHECKSUMS_KEY), _parts(metadata.get(METADATA_KEY, ""), more))
        tensors |= more
        header |= _header(file, metadata.get(METADATA_KEY, "{}"))
    version = header.pop("version", 0)
    if version > VERSION:
        raise FileError(
            f"{path} has format {version} of sparse models, this release of acf reads formats up to {VERSION}; "
            "update acf"
        )
    unknown = sorted(set(header) - {each.name for each in fields(SavedModel)})
    if unknown:
        raise FileError(f"{path} says {unknown[0]} of its model, which no release of acf writes; save the model anew")
    coordinates = (name.removesuffix(".block_rows") for name in tensors if name.endswith(".block_rows"))
    header["blocks"] = {**{name: {} for name in coordinates}, **header.get("blocks", {})}
    return SavedModel(tensors=tensors, **header)


@dataclass(frozen=True)
class _BlockEntry:
    """What is said of a block-sparse layer; the fields of `describe_layers`."""

    kind: str = ""
    shape: tuple[int, int] | None = None
    target_blocks: int = 0
    balanced: bool = False
    starts_dense: bool = False


@dataclass(frozen=True)
class _GroupEntry:
    """What is said of a layer with N:M groups."""

    kind: str
    spec: NMSparsity


@dataclass(frozen=True)
class _GradientEntry:
    """What is said of a layer whose gradients are sparse."""

    seed: int
    spec: GradientSparsity


_ENTRIES: dict[str, Any] = {
    "version": int,
    "blocks": dict[str, _BlockEntry],
    "groups": dict[str, _GroupEntry],
    "gradients": dict[str, _GradientEntry],
    "aliases": dict[str, str],
    "model": str,
    "structure": dict[str, Any] | None,
}
"""The schema of the header; names that are not here are refused by `read_saved`."""


def _header(path: Path, text: str) -> dict[str, Any]:
    """The header as plain values of the right kinds."""
    try:
        header: dict[str, Any] = read_value(dict[str, Any], json.loads(text), "header")
        for name, hint in _ENTRIES.items():
            if name in header:
                read_value(hint, header[name], name)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{path} does not say what its model is ({reason}); save the model anew") from error
    return header


def _read_file(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    _safetensors()
    try:
        with import_module("safetensors").safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except Exception as error:  # safetensors has errors of its own, the system others
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(f"{path} is no safetensors file ({reason}); pass a file of acf.save_sparse") from error


def _parts(header: str, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
    """What is summed: the header and the bytes of every tensor."""
    flat = {name: tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for name, tensor in tensors.items()}
    return {METADATA_KEY: header.encode(), **{name: content.numpy().data for name, content in flat.items()}}


def _plain_tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of the ``state_dict`` without shared memory, and the names that stand for another's tensor."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    storages: set[int] = set()
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor) or is_sharded(value) or value.is_meta:
            what = type(value).__name__ if not isinstance(value, Tensor) else "a sharded tensor or one without values"
            raise TopologyError(f"{name} is {what}, and a file holds whole tensors; save a model that is whole")
        key = (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)
        if value.numel() and key in first:
            aliases[name] = first[key]
            continue
        first[key] = name
        storage = value.untyped_storage().data_ptr()
        tensors[name] = value.detach().clone() if storage in storages else value.detach().contiguous()
        storages.add(storage)
    return tensors, aliases


def _safetensors() -> Any:
    try:
        return import_module("safetensors.torch")
    except ImportError as error:
        raise MissingDependencyError(
            "safetensors cannot be imported; install it with pip install safetensors"
        ) from error
