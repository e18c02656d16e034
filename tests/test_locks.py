"""Locks belong to the process that holds them, and end with it."""

import os
from pathlib import Path

import pytest

from acf import locks
from acf.locks import NoLocksError, lock, try_lock


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_a_second_holder_is_refused_until_the_first_has_closed_the_file(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    assert lock(first)
    assert not lock(second)
    assert not try_lock(second, exclusive=True)
    os.close(first)
    assert lock(second)
    os.close(second)


def test_readers_share_a_lock(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    assert lock(first, shared=True)
    assert lock(second, shared=True)
    os.close(first)
    os.close(second)


def test_a_file_system_without_locks_is_told_from_a_lock_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    file = opened(tmp_path / "lock")
    with pytest.raises(NoLocksError, match="not supported"):
        lock(file)
    assert locks.try_lock(file, exclusive=True)
    os.close(file)
