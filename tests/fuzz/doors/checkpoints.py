"""Checkpoints, saved models, programs of a device, and recordings."""

import json
import os
import pickle
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import acf
from acf import runtime
from acf.checksums import CHECKSUMS_KEY, checksums
from acf.nn.saved import METADATA_KEY
from acf.train.ema import ema
from tests.fuzz.values import damaged, mutated, strange, strange_tensor


class Payload:
    """What a hostile file would hold: unpickling it leaves a file beside the folder of the case."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("../unpickled",)


def _block_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


def _group_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    acf.sparsify_(model, acf.NMSparsity(n=2, m=4))
    return model


def checkpoint(rng: Random, folder: Path) -> None:
    """A checkpoint with damaged bytes, with values that are not what they should be, or with a payload."""
    blocks = rng.random() < 0.6
    model, path = (_block_model() if blocks else _group_model()), folder / "run.pt"
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
    if blocks:
        parts |= {"topology": acf.attach(model, optimizer, acf.BlockDST(total_steps=10, every=2))}
        parts |= {"average": ema(model, decay=0.9)}
    action = rng.random()
    state = {name: part.state_dict() for name, part in parts.items()}
    if action < 0.25:
        acf.save_checkpoint(path, **parts)
        path.write_bytes(damaged(rng, path.read_bytes()))
    elif action < 0.35:
        content = {**state, "model": Payload()}
        path.write_bytes(pickle.dumps(content)) if rng.random() < 0.5 else torch.save(content, path)
    else:
        name = rng.choice(sorted(state))
        torch.save({**state, name: _strange_state(rng, state[name])}, path)
    acf.load_checkpoint(path, **parts)


def _strange_state(rng: Random, state: Any) -> Any:
    """A state with one entry changed, at any depth."""
    if rng.random() < 0.03:
        return strange(rng)
    if isinstance(state, torch.Tensor):
        return strange_tensor(rng, state)
    if isinstance(state, list) and state:
        place = rng.randrange(len(state))
        return [*state[:place], _strange_state(rng, state[place]), *state[place + 1 :]]
    if not isinstance(state, dict) or not state:
        return mutated(rng, state)
    key = rng.choice(sorted(state, key=str))
    if rng.random() < 0.1:
        return {name: value for name, value in state.items() if name != key}
    return {**state, key: _strange_state(rng, state[key])}


def sharded_checkpoint(rng: Random, folder: Path) -> None:
    """A folder of `acf.save_sharded` with one damaged file, or one that holds a payload."""
    model = _block_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    topology = acf.attach(model, optimizer, acf.BlockDST(total_steps=10, every=2))
    place = folder / "sharded"
    acf.save_sharded(place, model, optimizer, topology, epoch=3)
    file = rng.choice(sorted(each for each in place.iterdir() if each.is_file()))
    file.write_bytes(pickle.dumps(Payload()) if rng.random() < 0.2 else damaged(rng, file.read_bytes()))
    acf.load_sharded(place, model, optimizer, topology)


def saved_bytes(rng: Random, folder: Path) -> None:
    """A damaged file of `acf.save_sparse`."""
    path = folder / "model.safetensors"
    acf.save_sparse(_block_model() if rng.random() < 0.5 else _group_model(), path)
    path.write_bytes(damaged(rng, path.read_bytes()))
    acf.load_sparse(path)


@cache
def _saved_parts(kind: str) -> tuple[dict[str, torch.Tensor], Any]:
    import tempfile

    from safetensors import safe_open

    path = Path(tempfile.mkdtemp(prefix="acf-fuzz-saved-"), "model.safetensors")
    acf.save_sparse(_block_model() if kind == "blocks" else _group_model(), path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[METADATA_KEY])
    tensors = load_file(path)
    path.unlink()
    path.parent.rmdir()
    return tensors, header


def saved_model(rng: Random, folder: Path) -> None:
    """A file of `acf.save_sparse` whose header or tensors are others, with checksums that are right."""
    tensors, header = _saved_parts(rng.choice(("blocks", "groups")))
    if rng.random() < 0.6:
        header = mutated(rng, header)
    else:
        name = rng.choice(sorted(tensors))
        changed = strange_tensor(rng, tensors[name])
        writable = isinstance(changed, torch.Tensor) and changed.layout == torch.strided and not changed.is_meta
        tensors = {**tensors, name: changed.clone().contiguous()} if writable else {}
    text = json.dumps(header)
    flat = {name: each.reshape(-1).view(torch.uint8).numpy().data for name, each in tensors.items()}
    sums = checksums({METADATA_KEY: text.encode(), **flat})
    path = folder / "model.safetensors"
    try:
        save_file(tensors, path, metadata={METADATA_KEY: text, CHECKSUMS_KEY: sums, "format": "pt"})
    except KeyError:  # a dtype that this safetensors does not hold
        return
    model = None if rng.random() < 0.7 else nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    loaded = acf.load_sparse(path, model)
    try:
        loaded(torch.ones(2, 32))
    except RuntimeError as error:  # as a dense layer says of a weight that is float64 and an input that is not
        if "same dtype" not in str(error):
            raise


@cache
def _image() -> bytes:
    rng = np.random.default_rng(0)
    blocks = runtime.WeightBlocks.from_mask(rng.random((2, 2)) < 0.6, (16, 16))
    product = runtime.Product(phase="forward", rows=8, weight=blocks, name="fc")
    return runtime.Device("sim", "acf-1").compile(product).to_bytes()


def program(rng: Random, folder: Path) -> None:
    """The image of a device's program, damaged, or with other words and a checksum that is right; listed and run."""
    image = damaged(rng, _image()) if rng.random() < 0.4 else _resealed(rng, _image())
    loaded = runtime.Program.from_bytes(image)
    str(loaded)
    if all(argument.nbytes < 1 << 20 for argument in loaded.arguments):
        device = runtime.Device("sim", "acf-1")
        runtime.launch(loaded, [device.malloc(argument.nbytes) for argument in loaded.arguments])
        device.synchronize()


def _resealed(rng: Random, image: bytes) -> bytes:
    from zlib import crc32

    words = np.frombuffer(image, dtype="<u4").copy()
    for _ in range(rng.choice((1, 1, 2))):
        words[rng.randrange(3, len(words))] = rng.choice((0, 1, 2, 3, 16, 17, 255, 65536, 2**31, 2**32 - 1))
    words[7] = 0
    words[7] = crc32(words.tobytes())
    return words.tobytes()


@cache
def _recording() -> tuple[dict[str, Any], Any]:
    import tempfile

    from safetensors import safe_open

    device = runtime.Device("sim", "acf-1")
    product = runtime.Product(phase="forward", rows=8, weight=runtime.WeightBlocks.dense(16, 16))
    with runtime.record(device) as recording:
        memory = [device.malloc(each.nbytes) for each in product.arguments]
        runtime.launch(device.compile(product), memory)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "run.safetensors")
        recording.save(path)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
            return {name: file.get_tensor(name) for name in file.keys()}, dict(metadata)  # noqa: SIM118


def recording(rng: Random, folder: Path) -> None:
    """A recording of a device with other values, or damaged bytes, replayed."""
    from safetensors.numpy import save

    arrays, metadata = _recording()
    (key, text), path = next(iter(metadata.items())), folder / "run.safetensors"
    changed = rng.random() < 0.7
    content = save(arrays, metadata={key: json.dumps(mutated(rng, json.loads(text))) if changed else text})
    path.write_bytes(content if changed else damaged(rng, content))
    runtime.Recording.load(path).replay(runtime.Device("sim", "acf-1"))
