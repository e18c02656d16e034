"""A file in which a bit has flipped is refused by name."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import acf
from acf.checksums import check_parts
from acf.errors import AcfError, FileError
from acf.nn.saved import read_saved


def flipped(path: Path, bit: int) -> Path:
    """A copy of ``path`` with one bit changed."""
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    damaged = path.with_name("damaged")
    damaged.write_bytes(content)
    return damaged


def model() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    acf.sparsify_(made, acf.BlockSparsity(0.5, block=16))
    return made


def test_no_flipped_bit_of_a_checkpoint_changes_what_is_loaded(tmp_path: Path) -> None:
    path, saved = tmp_path / "run.pt", model()
    acf.save_checkpoint(path, model=saved, epoch=3)
    size, refused = path.stat().st_size, 0
    for bit in random.Random(0).sample(range(8 * size), 100):
        loaded = model()
        for weight in loaded.parameters():
            nn.init.zeros_(weight)
        try:
            rest = acf.load_checkpoint(flipped(path, bit), model=loaded)
        except AcfError:
            refused += 1
            continue
        assert rest == {"epoch": 3}
        for name, value in loaded.state_dict().items():
            assert torch.equal(value, saved.state_dict()[name]), (bit, name)
    assert refused > 50


def test_no_flipped_bit_of_a_sparse_model_changes_what_is_loaded(tmp_path: Path) -> None:
    path, saved = tmp_path / "model.safetensors", model()
    acf.save_sparse(saved, path)
    for bit in random.Random(1).sample(range(8 * path.stat().st_size), 100):
        try:
            loaded = acf.load_sparse(flipped(path, bit))
        except AcfError:
            continue
        for name, value in loaded.state_dict().items():
            assert torch.equal(value, saved.state_dict()[name]), (bit, name)


def test_no_flipped_bit_of_a_trace_changes_what_is_played(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    trace = acf.Trace.from_matmuls([acf.Matmul("fc", "forward", rng.random((64, 64)) > 0.5, np.ones((64, 8)))])
    path = tmp_path / "step.safetensors"
    trace.save(path)
    for bit in random.Random(2).sample(range(8 * path.stat().st_size), 100):
        try:
            loaded = acf.Trace.load(flipped(path, bit))
        except AcfError:
            continue
        assert loaded.ops == trace.ops
        assert all(np.array_equal(bits.packed, trace.tensors[name].packed) for name, bits in loaded.tensors.items())


def test_the_damaged_part_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    acf.save_sparse(model(), path)
    damaged = flipped(path, 8 * path.stat().st_size - 1)
    with pytest.raises(FileError, match=r"damaged is damaged: \S+ is not what was written"):
        read_saved(damaged)


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    check_parts(tmp_path, None, {"weight": b"anything"})


@pytest.mark.parametrize("text", ["{", "[1]", json.dumps({"other": 1})])
def test_checksums_that_cannot_be_read_or_are_of_other_parts_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError, match="is damaged"):
        check_parts(tmp_path, text, {"weight": b"1"})
