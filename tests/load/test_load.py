"""A thousandth of ``make load``: nothing grows, is lost or is reordered."""

from pathlib import Path

import pytest

from tests.load.__main__ import LOADS, findings


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("name", LOADS)
def test_a_thousandth_of_a_load_leaves_nothing_behind_and_loses_nothing(name: str) -> None:
    load, count = LOADS[name]
    done = load(count // 1000)
    assert done.count >= count // 1000
    assert findings([done]) == []
