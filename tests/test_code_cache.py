"""Compiled code is kept, and loaded only where no other user can have planted it."""

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from acf import code_cache
from acf.code_cache import SharedCacheWarning, code_directory, is_private, is_whole, kept


@pytest.fixture(autouse=True)
def _forget_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code_cache._code_directory.cache_clear()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


class Builder:
    """Makes a file of this content, and counts how often."""

    def __init__(self, content: bytes = b"code" * 100) -> None:
        self.content, self.builds = content, 0

    def __call__(self, folder: Path) -> Path:
        self.builds += 1
        (folder / "made").write_bytes(self.content)
        return folder / "made"


def test_a_file_is_built_once_and_then_kept(tmp_path: Path) -> None:
    build = Builder()
    for _ in range(2):
        path = kept(tmp_path / "cache" / "code.so", build)
    assert build.builds == 1
    assert path.read_bytes().startswith(build.content)
    assert is_whole(path)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_broken_file_is_built_again(damage: str, tmp_path: Path) -> None:
    build, path = Builder(), tmp_path / "code.so"
    content = bytearray(kept(path, build).read_bytes())
    content[50] ^= 1
    path.write_bytes({"truncated": content[:100], "flipped": content, "empty": b""}[damage])
    kept(path, build)
    assert build.builds == 2
    assert is_whole(path)


def test_a_file_that_others_may_write_to_is_not_loaded_but_built_again(tmp_path: Path) -> None:
    build, path = Builder(), tmp_path / "code.so"
    kept(path, Builder(b"planted")).chmod(0o777)
    kept(path, build)
    assert build.builds == 1
    assert path.read_bytes().startswith(build.content)


def test_a_file_of_another_user_is_not_loaded_but_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, path = Builder(), tmp_path / "code.so"
    kept(path, Builder(b"planted"))
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr("os.getuid", lambda: 12345)
    assert not is_private(path)
    if os.getuid() == 0:
        kept(path, build)
        assert build.builds == 1


def test_a_folder_that_others_may_write_to_holds_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("ACF_CACHE_DIR", str(shared))
    with pytest.warns(SharedCacheWarning, match=r"other users may write to .*; chmod go-w it"):
        place = code_directory("rtl")
    assert place == tmp_path / f"acf-{os.getuid()}" / "rtl"


def test_a_private_folder_below_a_sticky_one_is_private(tmp_path: Path) -> None:
    sticky = tmp_path / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "own").mkdir(mode=0o700)
    assert is_private(sticky / "own")
    assert not is_private(sticky)


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    def fails(folder: Path) -> Path:
        (folder / "half").write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        kept(tmp_path / "code.so", fails)
    assert [each.name for each in tmp_path.iterdir()] == [".code.so.lock"]


def test_the_folder_of_a_killed_build_is_removed_by_a_later_one(tmp_path: Path) -> None:
    killed, running = tmp_path / "build-1", tmp_path / "build-2"
    for folder in (killed, running):
        folder.mkdir()
        (folder / "half.o").write_bytes(b"")
    long_ago = killed.stat().st_mtime - 3 * code_cache.BUILD_SECONDS
    os.utime(killed, (long_ago, long_ago))
    kept(tmp_path / "code.so", Builder())
    assert not killed.exists()
    assert running.exists()


def test_of_processes_that_need_a_file_at_once_one_builds_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from acf.code_cache import kept\n"
        "def build(folder):\n"
        "    with open(sys.argv[1] + '/builds', 'a') as file: file.write('x')\n"
        "    time.sleep(0.3); (folder / 'made').write_bytes(b'code'); return folder / 'made'\n"
        "kept(Path(sys.argv[1]) / 'code.so', build)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert (tmp_path / "builds").read_text() == "x"


USER, GROUP = "ann", 1000


@pytest.mark.parametrize(
    ("group", "members", "shared"),
    [
        (0, [], False),
        (GROUP, [], False),
        (GROUP, [USER], False),
        (GROUP, [USER, "bob"], True),
        (GROUP + 1, [], True),
        (GROUP + 2, None, True),
    ],
    ids=["root's", "the user's own", "with the user alone", "with another member", "another group", "unknown"],
)
def test_a_group_that_may_have_other_members_is_shared(
    group: int, members: list[str] | None, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(number: int) -> SimpleNamespace:
        if members is None:
            raise KeyError(number)
        return SimpleNamespace(gr_mem=members)

    monkeypatch.setattr(pwd, "getpwuid", lambda user: SimpleNamespace(pw_name=USER, pw_gid=GROUP))
    monkeypatch.setattr(grp, "getgrgid", entry)
    assert code_cache._is_shared(group) is shared


def test_a_folder_that_was_planted_among_the_temporary_files_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / f"acf-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACF_CACHE_DIR", str(tmp_path / "file" / "cache"))
    chosen = code_directory("kernels")
    assert planted not in (chosen, *chosen.parents)
    assert is_private(chosen.parent)


def test_where_the_file_system_has_no_locks_the_file_is_built_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError("no locks available")

    with monkeypatch.context() as without_locks:
        without_locks.setattr(code_cache.os, "open", refuse)
        with code_cache.locked(tmp_path / ".library.lock"):
            pass
    assert not (tmp_path / ".library.lock").exists()
