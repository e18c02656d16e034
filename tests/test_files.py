"""Outputs replace files whole, and leave everything else as it is."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from acf import files
from acf.errors import FileError
from acf.files import cache_directory, check_name, check_writable, is_stream, replacing, write_whole


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_goes_on_pointing_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "runs" / "result.json")
    write_whole(tmp_path / "latest", b"new")
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "runs" / "result.json").read_bytes() == b"new"


def test_a_device_is_written_to_and_stays_a_device() -> None:
    write_whole(Path(os.devnull), b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"content")
    reader.join(5)
    assert received == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder; pass the path of a file in it"):
        write_whole(tmp_path, b"")


def test_a_name_that_is_too_long_is_refused_and_the_longest_is_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has 256 bytes, a file name at most 255"):
        write_whole(tmp_path / ("a" * 256), b"")
    write_whole(tmp_path / ("a" * 255), b"content")
    assert (tmp_path / ("a" * 255)).read_bytes() == b"content"


def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_whole(path, b"old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_temporary_files_of_killed_writes_are_removed_by_the_next_write_in_the_folder(tmp_path: Path) -> None:
    killed, others = tmp_path / f".other.json.{'0' * 32}.tmp", tmp_path / ".notes.tmp"
    killed.write_bytes(b"half")
    others.write_bytes(b"not ours")
    with replacing(tmp_path / "running.json") as running:
        running.write_bytes(b"half")
        write_whole(tmp_path / "result.json", b"new")
        assert running.exists()
    assert not killed.exists()
    assert others.exists()


def test_without_locks_a_temporary_file_is_removed_when_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object, **__: object) -> bool:
        raise files.NoLocksError(95, "Operation not supported")

    monkeypatch.setattr(files, "lock", no_locks)
    killed, running = (tmp_path / f".result.json.{digit * 32}.tmp" for digit in "01")
    killed.write_bytes(b"half")
    running.write_bytes(b"half")
    long_ago = killed.stat().st_mtime - 2 * files.STALE_SECONDS
    os.utime(killed, (long_ago, long_ago))
    write_whole(tmp_path / "result.json", b"new")
    assert not killed.exists()
    assert running.exists()


def test_a_full_disk_is_told_from_a_folder_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(FileError, match=r"cannot be written \(No space left on device\); free some space"):
        write_whole(tmp_path / "result.json", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "result.json")
    assert not (tmp_path / "new").exists()
    check_writable(Path(os.devnull))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="cannot be written"):
        check_writable(tmp_path / "file" / "result.json")


def test_without_a_home_the_cache_is_a_folder_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACF_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(files.Path, "home", no_home)
    assert cache_directory().name == f"acf-{os.getuid()}"


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "", "/x", "a\0b"])
def test_a_name_that_leads_out_of_its_folder_is_refused(name: str) -> None:
    with pytest.raises(FileError, match="is no plain name"):
        check_name(name, "--name")


def test_a_path_of_very_many_folders_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="parts, a path at most"):
        check_writable(tmp_path / ("a/" * 1500))


def test_a_device_holds_no_record_to_go_on_with() -> None:
    assert is_stream(Path("/dev/null"))
    assert not is_stream(Path("/dev"))
    assert not is_stream(Path(__file__))
