"""Proofs about the accelerators' units, and that they can fail."""

import pytest

from acf.rtl.design.accelerators.tensordash_scheduler import NARROW, WIDE, SchedulerSpec
from acf.rtl.verify.formal.accelerators import EachPairOnce
from acf.rtl.verify.formal.prove import prove_always


@pytest.mark.parametrize("spec", [NARROW, WIDE], ids=["4 lanes, 4 deep", "16 lanes, 3 deep"])
def test_the_scheduler_picks_each_pair_exactly_once(spec: SchedulerSpec) -> None:
    assert prove_always(EachPairOnce(spec)).holds


def test_a_scheduler_whose_lanes_decide_at_the_same_time_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "acf.rtl.design.accelerators.tensordash_scheduler.lane_levels", lambda lanes, moves: (tuple(range(lanes)),)
    )
    proof = prove_always(EachPairOnce())
    assert not proof.holds
    assert "staged" in proof.counterexample
