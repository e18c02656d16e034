"""Rooflines and Pareto fronts show what the results counted."""

from dataclasses import replace

import pytest

from acf.report.points import pareto_figure, roofline_figure


def test_every_operation_is_a_mark_of_the_roofline(results):
    marks = [trace for trace in roofline_figure(results).data if trace.mode == "markers"]
    op = results[0].ops[0]
    assert [len(trace.x) for trace in marks] == [len(result.ops) for result in results]
    assert marks[0].x[0] == pytest.approx(op.effectual_macs / op.dram_bytes, rel=1e-3)
    assert marks[0].y[0] == pytest.approx(op.effectual_macs / op.cycles * results[0].clock_hz, rel=1e-3)


def test_the_roof_is_the_rate_of_dram_up_to_the_peak(results):
    known = replace(results[0], dram_bytes_per_s=1e9)
    roof = next(trace for trace in roofline_figure([known]).data if trace.mode == "lines")
    assert max(roof.y) == known.peak_macs_per_s
    assert roof.y[0] == pytest.approx(1e9 * roof.x[0])


def test_machines_of_one_roof_share_a_line(results):
    lines = [trace.name for trace in roofline_figure(results).data if trace.mode == "lines"]
    assert len(lines) == 3


def test_a_machine_that_another_beats_in_time_energy_and_area_is_a_ring(results):
    best = replace(results[0], area_mm2={"all": 10.0})
    beaten = replace(best, architecture="beaten", clock_hz=best.clock_hz / 2, area_mm2={"all": 11.0})
    small = replace(beaten, architecture="small", area_mm2={"all": 5.0})
    marks = pareto_figure([best, beaten, small]).data[0]
    assert list(marks.marker.symbol) == ["circle", "circle-open", "circle"]
    assert marks.marker.size[1] > marks.marker.size[2]


def test_machines_compete_on_the_same_workload_only(results):
    figure = pareto_figure([results[0], results[3]])
    assert [list(trace.marker.symbol) for trace in figure.data] == [["circle"], ["circle"]]
