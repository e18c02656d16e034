"""A folder of a distributed checkpoint runs no code and is refused where its bytes have changed."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import metadata

import acf
from acf.errors import FileError
from acf.train.sharded_reader import _member


class Payload:
    """Makes the folder ``place`` when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def saved(folder: Path) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    acf.save_sharded(folder, model, optimizer, epoch=3)
    return model, optimizer


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    model, optimizer = saved(tmp_path / "run")
    weight = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.zero_()
    assert acf.load_sharded(tmp_path / "run", model, optimizer) == {"epoch": 3}
    assert torch.equal(model[0].weight, weight)


def test_metadata_that_would_run_code_is_refused_and_not_run(tmp_path: Path) -> None:
    model, optimizer = saved(tmp_path / "run")
    (tmp_path / "run" / ".metadata").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(FileError, match="mkdir, which no checkpoint needs"):
        acf.load_sharded(tmp_path / "run", model, optimizer)
    assert not (tmp_path / "ran").exists()


def test_a_value_that_would_run_code_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = torch.save

    def with_payload(value: Any, file: Any, **options: Any) -> None:
        write({"parts": Payload(tmp_path / "ran")} if isinstance(value, dict) and "parts" in value else value, file)

    monkeypatch.setattr("acf.train.sharded_checkpoint.torch.save", with_payload)
    model, optimizer = saved(tmp_path / "run")
    with pytest.raises(FileError, match="cannot be loaded as a distributed checkpoint"):
        acf.load_sharded(tmp_path / "run", model, optimizer)
    assert not (tmp_path / "ran").exists()


def test_a_flipped_bit_of_a_weight_is_refused(tmp_path: Path) -> None:
    model, optimizer = saved(tmp_path / "run")
    weight = model[0].weight.detach().numpy().tobytes()
    (file,) = (tmp_path / "run").glob("*.distcp")
    content = bytearray(file.read_bytes())
    content[content.index(weight[:64]) + 5] ^= 1
    file.write_bytes(content)
    with pytest.raises(FileError, match="does not match its checksum"):
        acf.load_sharded(tmp_path / "run", model, optimizer)


def test_a_member_of_an_enumeration_is_read_and_no_other_attribute() -> None:
    formats = metadata.TensorProperties.__module__
    kind = vars(sys.modules[formats])["_MEM_FORMAT_ENCODING"]
    name = next(iter(kind.__members__))
    assert _member(kind, name) is kind[name]
    for owner, attribute in ((kind, "__class__"), (Path, "home"), (metadata.Metadata, "__init__")):
        with pytest.raises(FileError, match=f"asks for {attribute} of"):
            _member(owner, attribute)
