"""Every door answers whatever comes in: with a result or one line, in time and memory. ``make fuzz`` plays more."""

import pytest

from tests.fuzz.__main__ import fuzz
from tests.fuzz.doors import DOORS

CASES = 70
"""Of each door, so that all doors together play about 500."""


@pytest.mark.parametrize("name", DOORS)
def test_a_door_answers_whatever_comes_in(name: str) -> None:
    findings = fuzz(CASES, 0, [name])
    assert not findings, "\n".join(map(str, findings))
