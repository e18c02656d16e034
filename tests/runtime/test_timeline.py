"""Where the time of an interval went."""

import pytest

from acf.runtime import timeline as timeline_module
from acf.runtime.errors import InvalidValueError
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


def test_of_very_many_operations_the_latest_are_kept_and_time_before_them_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline_module, "MOST_SPANS", 10)
    timeline = Timeline()
    for number in range(35):
        timeline.add(Span(str(number), "compute", 0, number, number + 1.0, 0, Cost(1.0)))
        timeline.host_work(1.0)
    assert [span.name for span in timeline.spans] == [str(number) for number in range(20, 35)]
    assert timeline.host_spans == [(float(number), number + 1.0) for number in range(20, 35)]
    with pytest.raises(InvalidValueError, match=r"operations before 20 s are forgotten, .* ask since_s=20 or later"):
        timeline.usage()
    assert timeline.usage(since_s=20.0).busy_s["compute"] == 15.0


def test_an_engine_takes_one_operation_at_a_time() -> None:
    timeline = Timeline()
    assert timeline.place("compute", 1.0, Cost(2.0)) == (1.0, 3.0)
    assert timeline.place("compute", 0.0, Cost(1.0)) == (3.0, 4.0)
    assert timeline.place("h2d", 0.0, Cost(1.0)) == (0.0, pytest.approx(1.0))
