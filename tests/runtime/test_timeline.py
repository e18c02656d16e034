"""Where the time of an interval went."""

import pytest

from acf.runtime.timeline import Cost, Span, Timeline


def test_usage_counts_overlaps_once_and_the_rest_as_idle() -> None:
    timeline = Timeline()
    timeline.host_work(1.0)
    for engine, start_s, end_s in (("h2d", 0.0, 2.0), ("compute", 1.0, 3.0), ("compute", 4.0, 5.0)):
        timeline.spans.append(Span("x", engine, 0, start_s, end_s, 0, Cost(end_s - start_s, {"mac": 0.5})))
    usage = timeline.usage()
    assert (usage.total_s, usage.host_s, usage.idle_s) == (5.0, 1.0, 1.0)
    assert usage.busy_s == {"h2d": 2.0, "d2h": 0.0, "d2d": 0.0, "compute": 3.0}
    assert usage.energy_j == {"mac": 1.5}
    late = timeline.usage(since_s=2.5)
    assert (late.total_s, late.busy_s["compute"]) == (2.5, 1.5)


def test_what_is_forgotten_costs_no_memory_and_the_clocks_go_on() -> None:
    timeline = Timeline()
    timeline.host_work(1.0)
    timeline.spans.append(Span("x", "h2d", 0, 0.0, 2.0, 0, Cost(2.0)))
    timeline.wait_until(2.0)
    timeline.forget()
    assert (timeline.spans, timeline.host_s) == ([], 2.0)
    assert timeline.usage(since_s=2.0).total_s == 0.0


def test_an_engine_takes_one_operation_at_a_time() -> None:
    timeline = Timeline()
    assert timeline.place("compute", 1.0, Cost(2.0)) == (1.0, 3.0)
    assert timeline.place("compute", 0.0, Cost(1.0)) == (3.0, 4.0)
    assert timeline.place("h2d", 0.0, Cost(1.0)) == (0.0, pytest.approx(1.0))
