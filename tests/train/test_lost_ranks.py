"""Which ranks of a distributed run are gone, by asking those that are left."""

import pytest
import torch

from acf.errors import LostRankError
from acf.train import distributed, lost_ranks
from acf.train.lost_ranks import naming_lost_ranks, silent_ranks


class GoneStore:
    """A store whose host is gone."""

    def set(self, key: str, value: str) -> None:
        raise torch.distributed.DistNetworkError("failed to send, Broken pipe")


def test_the_ranks_that_do_not_answer_are_the_lost_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_ranks, "ANSWER_SECONDS", 0.2)
    store = torch.distributed.HashStore()
    store.set("acf/here/2", "1")
    assert silent_ranks(store, rank=0, count=4) == [1, 3]
    assert store.check(["acf/here/0"])


def test_with_its_store_rank_0_is_gone() -> None:
    assert silent_ranks(GoneStore(), rank=1, count=2) == [0]
    assert silent_ranks(GoneStore(), rank=0, count=2) == []


def fail_with(message: str) -> None:
    with naming_lost_ranks("start again"):
        raise RuntimeError(message)


def test_errors_of_another_kind_pass_unchanged() -> None:
    with pytest.raises(RuntimeError, match="shapes do not match") as passed:
        fail_with("shapes do not match")
    assert not isinstance(passed.value, LostRankError)


def test_a_sum_of_scores_that_loses_a_rank_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object, **__: object) -> None:
        raise RuntimeError("[pair.cc:537] Connection closed by peer [127.0.0.1]:3421")

    for name, value in {"is_initialized": True, "get_rank": 0, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    monkeypatch.setattr(torch.distributed, "all_reduce", lose)
    with pytest.raises(LostRankError, match=r"rank 0 lost rank 1 while .*Connection closed.*; start all of them again"):
        distributed.sum_over_processes(torch.ones(1))
