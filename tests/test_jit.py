"""Compiling inner loops with numba."""

import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from acf import jit
from acf.code_cache import SharedCacheWarning
from acf.jit import compiled, int64


def test_a_function_that_takes_a_loop_counter_is_compiled_once() -> None:
    @compiled
    def doubled(value: int) -> int:
        return 2 * value

    @compiled
    def total() -> int:
        cycle, found = int64(0), 0
        while cycle < 4:
            found += doubled(cycle)
            cycle += 1
        return found

    assert total() == 12
    callee: Any = doubled
    assert [str(types) for types in callee.signatures] == ["(int64,)"]


def test_a_cache_that_cannot_be_written_costs_a_warning_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(jit.FunctionCache, "save_overload", full)
    monkeypatch.setattr(jit.FunctionCache, "load_overload", full)
    doubled = jit.compiled(_double)
    with pytest.warns(jit.CompilerCacheWarning, match="cannot be kept .No space left on device."):
        assert doubled(21) == 42


def test_without_a_place_beside_the_source_and_without_a_home_loops_are_kept_in_the_cache_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homeless(monkeypatch)
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", "")
    assert jit.compiled(_double)(21) == 42
    assert list((tmp_path / "numba").rglob("*.nbi"))


def test_loops_are_not_loaded_from_a_folder_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("ACF_CACHE_DIR", str(own))
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", str(shared))
    with pytest.warns(SharedCacheWarning, match="other users may write to .*, so compiled loops are not kept there"):
        assert jit.compiled(_double)(21) == 42
    assert not list(shared.rglob("*.nb?"))
    assert list((own / "numba").rglob("*.nbi"))
    assert str(shared) == jit.numba.config.CACHE_DIR, "the setting is the user's, for loops of other packages"


def test_loops_are_not_loaded_from_a_folder_with_a_file_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", str(tmp_path / "named"))
    assert jit.compiled(_double)(21) == 42
    (kept,) = (tmp_path / "named").rglob("*.nbi")
    if os.getuid() == 0:
        os.chown(kept, 12345, 12345)
    else:
        monkeypatch.setattr("os.getuid", lambda: 12345)
    jit._is_own.cache_clear()
    with pytest.warns(SharedCacheWarning, match="compiled loops are not kept there"):
        assert not jit._is_own(str(kept.parent))


def test_where_no_folder_can_be_written_loops_are_compiled_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> None:
        raise RuntimeError("no locator available")

    monkeypatch.setattr(jit, "_ForgivingCache", nowhere)
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", "")
    assert jit.compiled(_double)(21) == 42


def test_code_of_another_signature_is_compiled_anew_and_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homeless(monkeypatch)
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", "")
    first = jit.compiled(_double)
    assert (first(21), first(0.5)) == (42, 1.0)
    integer, real = sorted((tmp_path / "numba").rglob("*.nbc"))  # as two processes leave them that save at once
    kept = integer.read_bytes()
    integer.write_bytes(real.read_bytes())
    real.write_bytes(kept)
    for _ in range(2):
        again = jit.compiled(_double)
        assert (again(21), again(0.5)) == (42, 1.0)
    assert again.stats.cache_hits, "the second time, what was compiled anew is found"  # type: ignore[attr-defined]


@pytest.mark.parametrize("damage", [lambda kept: b"", lambda kept: kept[: len(kept) // 2], lambda kept: b"\xff" * 100])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_files_of_the_cache_are_compiled_anew(
    suffix: str, damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homeless(monkeypatch)
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit.numba.config, "CACHE_DIR", "")
    assert jit.compiled(_double)(21) == 42
    (file,) = (tmp_path / "numba").rglob(f"*.{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jit.CompilerCacheWarning)
        assert jit.compiled(_double)(21) == 42


def test_one_process_at_a_time_numbers_the_files_of_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, together = Lock(), []

    def save(*_: object) -> None:
        together.append(not inside.acquire(blocking=False))
        time.sleep(0.05)
        inside.release()

    monkeypatch.setattr(jit.FunctionCache, "save_overload", save)
    caches = [jit._ForgivingCache(_double) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda cache: cache.save_overload((), None), caches))
    assert together == [False] * 4


def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numba find no place of its own, neither beside the source nor in the user's cache."""
    from numba.core import caching

    names = [name for name in vars(caching) if "InTree" in name or "UserWide" in name]
    assert len(names) >= 2
    for name in names:
        monkeypatch.setattr(getattr(caching, name), "from_function", classmethod(lambda *_: None))


def _double(value: int) -> int:
    return 2 * value
