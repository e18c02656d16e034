"""The folder of records: rows that replace each other, settings that must agree."""

from pathlib import Path

import pytest

from acf.bench.pong.record import ScorePoint
from acf.bench.pong.store import PongStore, existing_store
from acf.errors import DataError, FileError

POINT = ScorePoint("dense", 0, 400, 10, 1.5, None, None, 3, 0.9, 0.25)


def test_a_point_that_is_written_again_replaces_the_old_one(tmp_path: Path) -> None:
    store = PongStore(tmp_path)
    store.add(POINT)
    store.add(ScorePoint("dense", 0, 400, 10, 2.5, 80.0, -20.0, 3, 0.9, 0.25))
    store.close()
    assert [(point.seconds, point.score) for point in PongStore(tmp_path).rows(ScorePoint)] == [(2.5, -20.0)]


def test_a_folder_refuses_runs_of_other_settings(tmp_path: Path) -> None:
    PongStore(tmp_path).require_settings({"batch": 32, "rate": 1e-4})
    PongStore(tmp_path).require_settings({"batch": 32, "rate": 1e-4})
    with pytest.raises(DataError, match="has batch 32, and this comparison 64; use the same, or another folder"):
        PongStore(tmp_path).require_settings({"batch": 64, "rate": 1e-4})


def test_a_folder_from_before_a_setting_has_what_was_done_then(tmp_path: Path) -> None:
    PongStore(tmp_path).require_settings({"batch": 32})
    with pytest.raises(DataError, match="has start torch, and this comparison he"):
        PongStore(tmp_path).require_settings({"batch": 32, "start": "he"})
    PongStore(tmp_path).require_settings({"batch": 32, "start": "torch"})


def test_sessions_of_the_same_facts_are_one(tmp_path: Path) -> None:
    store = PongStore(tmp_path)
    numbers = [store.add_session({"machine": name}) for name in ("one", "other", "one")]
    assert numbers == [1, 2, 1]


def test_a_folder_without_records_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"has no pong\.sqlite"):
        existing_store(tmp_path)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "pong.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(FileError, match=r"pong\.sqlite cannot be used as the record"):
        PongStore(tmp_path)


def test_variants_with_slashes_have_files_of_their_own(tmp_path: Path) -> None:
    store = PongStore(tmp_path)
    assert store.checkpoint("static-90/block=32", 2).name == "static-90_block32-seed2.pt"
