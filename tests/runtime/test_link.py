"""The host link's rates, and what it refuses."""

import pytest

from acf.runtime import HostLink, InvalidValueError


def test_every_generation_doubles_the_rate_and_lanes_multiply_it() -> None:
    rates = [HostLink(generation=generation, lanes=16).bytes_per_s for generation in (3, 4, 5)]
    assert rates[1] == 2 * rates[0]
    assert rates[2] == 4 * rates[0]
    assert HostLink(lanes=4).bytes_per_s == HostLink(lanes=16).bytes_per_s / 4
    assert 12e9 < HostLink(generation=3, lanes=16).bytes_per_s < 15.75e9  # 15.75 GB/s before packet headers


@pytest.mark.parametrize(
    "wrong", [{"generation": 2}, {"lanes": 3}, {"latency_s": -1.0}, {"submission_s": -1.0}, {"payload_bytes": 0}]
)
def test_a_link_that_does_not_exist_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        HostLink(**wrong)  # type: ignore[arg-type]
