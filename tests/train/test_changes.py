"""The log of changes stays small however long a run is, and loses none of the latest."""

import pytest
import torch

from acf.train import changes
from acf.train.changes import ChangeLog, LayerChange


def moved(count: int) -> dict[str, LayerChange]:
    return {"fc": LayerChange(torch.tensor(count), present_blocks=8, pruned_blocks=0)}


def test_the_latest_changes_are_remembered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_CHANGES", 5)
    monkeypatch.setattr(changes, "MOST_UNREAD_MOVES", 2)
    log = ChangeLog()
    for step in range(20):
        log.append(step, moved(step % 3))
        assert len(log._pending) <= 2
    assert [change.step for change in log.settle()] == [15, 16, 17, 18, 19]
    assert [change.moved_blocks for change in log.changes] == [0, 1, 2, 0, 1]
    assert log.settle() == []


def test_a_layer_that_took_no_part_is_not_in_the_log() -> None:
    log = ChangeLog()
    log.append(1, moved(-1))
    assert log.settle() == log.changes == []
