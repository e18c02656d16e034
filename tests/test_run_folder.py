"""One process at a time in a run folder; what a killed one left behind is no obstacle and does not stay."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acf import run_folder
from acf.errors import FileError
from acf.files import replacing, write_whole
from acf.locks import NoLocksError
from acf.metrics.run_log import LOG_FILE, RunLog
from acf.records.database import connect
from acf.run_folder import LOCK_NAME, NoLocksWarning, only_process_in, only_process_writing

HOLD = """
import sys
from pathlib import Path
from acf.run_folder import {function}
with {function}(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held_elsewhere(path: Path, function: str = "only_process_in") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds ``path`` until the block ends, or it is killed."""
    command = [sys.executable, "-c", HOLD.format(function=function), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate("\n")


def test_the_second_process_in_a_folder_is_told_who_the_first_is(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    with held_elsewhere(folder) as other:
        expected = rf"runs is in use by process {other.pid}, and one process at a time .*; wait until .* or name"
        with pytest.raises(FileError, match=expected), only_process_in(folder):
            pass
    with only_process_in(folder):
        assert (folder / LOCK_NAME).read_text().startswith(f"{os.getpid()} ")


@pytest.mark.parametrize("function", [only_process_in, only_process_writing])
def test_an_interruption_says_where_finished_work_lies(function: Callable[[Path], Any], tmp_path: Path) -> None:
    place = tmp_path / "runs"

    def work() -> None:
        with function(place):
            (place / "record.json" if place.is_dir() else place).write_text("done")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        work()
    assert interrupted.value.__notes__ == [f"what is done stays in {place}"]


def test_an_interruption_before_anything_is_written_promises_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as interrupted, only_process_in(tmp_path / "runs"):
        raise KeyboardInterrupt
    assert not hasattr(interrupted.value, "__notes__")


def test_records_that_share_a_folder_have_a_lock_each(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / "first.json", "only_process_writing"):
        with (
            pytest.raises(FileError, match=r"first.json is in use by process"),
            only_process_writing(tmp_path / "first.json"),
        ):
            pass
        with only_process_writing(tmp_path / "second.json"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_is_in_nobodys_way_and_its_temporary_files_are_swept(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    with held_elsewhere(folder) as other:
        other.kill()
        other.wait()
    assert (folder / LOCK_NAME).exists()
    (folder / "traces").mkdir()
    for place in (folder, folder / "traces"):
        (place / f".record.json.{'a' * 32}.tmp").write_bytes(b"half")
    with only_process_in(folder), replacing(folder / "record.json") as temporary:
        assert list(folder.rglob("*.tmp")) == [temporary]
        temporary.write_bytes(b"whole")
    assert sorted(path.name for path in folder.rglob("*")) == ["record.json", "traces"]


def fail_in(folder: Path) -> None:
    with only_process_in(folder):
        assert folder.is_dir()
        raise FileError("bad input")


def test_folders_that_a_failing_command_made_are_removed_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(FileError, match="bad input"):
        fail_in(tmp_path / "there" / "new" / "deeper")
    assert list((tmp_path / "there").iterdir()) == []
    with only_process_in(tmp_path / "kept" / "run"):
        (tmp_path / "kept" / "run" / "record.json").write_bytes(b"")
    assert (tmp_path / "kept" / "run" / "record.json").exists()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="file cannot be written"), only_process_in(tmp_path / "file"):
        pass


def test_no_record_and_a_device_need_no_lock() -> None:
    with only_process_writing(None), only_process_writing(Path(os.devnull)):
        assert not Path(os.devnull).with_name(".null.lock").exists()


def test_a_file_system_without_locks_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> bool:
        raise NoLocksError(95, "Operation not supported")

    monkeypatch.setattr(run_folder, "lock", unsupported)
    with pytest.warns(NoLocksWarning, match="without locks"), only_process_in(tmp_path):
        pass


@pytest.mark.parametrize("function", [only_process_in, only_process_writing])
def test_a_name_that_no_file_system_takes_is_refused_in_one_line(function, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    expected = r"cannot be written \(File name too long\); pass a path"
    with pytest.raises(FileError, match=expected), function(tmp_path / ("a" * 300)):
        pass


def test_a_link_in_a_run_folder_that_leads_out_of_it_is_not_written_through(tmp_path: Path) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    (folder / "record.json").symlink_to(outside / "mine.txt")
    (folder / "traces").symlink_to(outside)
    with only_process_in(folder):
        for name in ("record.json", "traces/new.json"):
            with pytest.raises(FileError, match=r"leads to .*, out of the run folder .*; remove the link"):
                write_whole(folder / name, b"x")
        with pytest.raises(FileError, match="out of the run folder"):
            connect(folder / "record.json", owner=test_a_folder_that_is_a_file_is_refused)
    with pytest.raises(FileError, match="out of the run folder"):
        write_log(folder, outside)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"mine.txt": "mine"}
    write_whole(folder / "record.json", b"a path that the user names goes where its links lead")
    assert (outside / "mine.txt").read_text().startswith("a path that the user names")


def write_log(folder: Path, outside: Path) -> None:
    (folder / LOG_FILE).symlink_to(outside / "log")
    RunLog(folder)


def test_a_run_folder_that_is_a_link_and_links_within_it_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    folder = tmp_path / "run"
    folder.symlink_to(tmp_path / "large disk")
    (folder / "latest.json").symlink_to("first.json")
    with only_process_in(folder):
        write_whole(folder / "latest.json", b"x")
    assert (tmp_path / "large disk" / "first.json").read_bytes() == b"x"


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (folder / LOCK_NAME).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(FileError, match="cannot be written"), only_process_in(folder):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_holder_that_wrote_no_id_is_another_process(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path):
        (tmp_path / LOCK_NAME).write_text("")
        with pytest.raises(FileError, match="is in use by another process"), only_process_in(tmp_path):
            pass


def test_a_holder_on_another_machine_is_named_with_it(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path):
        (tmp_path / LOCK_NAME).write_text("7 elsewhere")
        with pytest.raises(FileError, match="is in use by process 7 of elsewhere"), only_process_in(tmp_path):
            pass
