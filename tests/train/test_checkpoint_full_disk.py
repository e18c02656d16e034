"""Whatever writes a model's file: where there is no more room, the error is one line, and the old file is kept."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import acf
from acf.errors import FileError

MOST_BYTES = 2000


@contextmanager
def small_disk() -> Iterator[None]:
    """No file may grow beyond `MOST_BYTES`; the system refuses further writes as those to a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def sparse_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 64))
    acf.sparsify_(model, acf.BlockSparsity(0.5, block=8))
    return model


def save_sharded(path: Path) -> None:
    model = sparse_model()
    acf.save_sharded(path, model, torch.optim.SGD(model.parameters(), lr=0.1))


def save_trace(path: Path) -> None:
    model = nn.Linear(64, 256)
    with acf.capture(model) as trace:
        model(torch.randn(64, 64)).sum().backward()
    trace.save(path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "checkpoint": lambda path: acf.save_checkpoint(path, model=sparse_model()),
    "sparse model": lambda path: acf.save_sparse(sparse_model(), path),
    "sharded checkpoint": save_sharded,
    "trace": save_trace,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_does_not_fit_is_one_line_and_leaves_nothing_else(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with small_disk(), pytest.raises(FileError, match=r"cannot be written .*; free some space") as failed:
        WRITERS[name](path)
    assert "\n" not in str(failed.value)
    assert not path.is_file()
    assert not list(tmp_path.glob(".*"))
    WRITERS[name](path)
    assert path.exists()
