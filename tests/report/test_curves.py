"""Training curves show what was recorded."""

import math
from dataclasses import replace

import pytest

from acf.report.curves import (
    CURVE_POINTS,
    accuracy_by_cost_figure,
    accuracy_figure,
    loss_figure,
    moved_blocks_figure,
    smoothed,
    smoothing_steps,
)
from acf.report.style import PALETTE

CURVE_FIGURES = [loss_figure, accuracy_figure, moved_blocks_figure]


def test_loss_curve_of_a_constant_loss_is_that_constant(training):
    flat = replace(training[0], losses=(0.5,) * 300)
    assert loss_figure([flat]).data[0].y == pytest.approx([0.5] * 300)


def test_smoothing_averages_two_percent_of_the_steps_around_each_point():
    losses = [float(step % 2) for step in range(500)]
    assert smoothing_steps(500) == 11
    assert smoothed(losses)[250] == pytest.approx(sum(losses[245:256]) / 11)


def test_short_runs_are_not_smoothed():
    assert smoothed([3.0, 2.0, 1.0]) == [3.0, 2.0, 1.0]


def test_a_diverged_loss_leaves_a_gap_and_spoils_no_other_point():
    curve = smoothed([1.0, math.inf, 2.0, math.nan])
    assert [curve[0], curve[2]] == [1.0, 2.0]
    assert math.isnan(curve[1])
    assert math.isnan(curve[3])


def test_a_long_run_is_thinned_to_a_bounded_number_of_points(training):
    long_run = replace(training[0], losses=(1.0,) * 50_000)
    assert len(loss_figure([long_run]).data[0].x) <= 2 * CURVE_POINTS


def test_accuracy_curve_is_in_percent_at_the_recorded_steps(training):
    curve = accuracy_figure(training).data[0]
    assert curve.x == (100, 200)
    assert curve.y == pytest.approx((80, 95))


def test_a_run_without_topology_steps_has_no_moved_blocks_curve_and_the_other_keeps_its_colour(training):
    curves = moved_blocks_figure(training).data
    assert [(curve.name, curve.y) for curve in curves] == [("sparse 90 %", (12, 7))]
    assert curves[0].line.color == PALETTE[1] == accuracy_figure(training).data[1].line.color


@pytest.mark.parametrize("make_figure", CURVE_FIGURES)
def test_curves_have_named_axes(make_figure, training):
    layout = make_figure(training).layout
    assert layout.xaxis.title.text == "training step"
    assert layout.yaxis.title.text


def test_accuracy_is_plotted_against_seconds_and_joules_where_they_were_measured(training):
    measured = replace(training[0], test_seconds=(1.5, 3.0), test_joules=(2000.0, 4000.0))
    by_time = accuracy_by_cost_figure([measured, training[1]], "test_seconds")
    by_energy = accuracy_by_cost_figure([measured, training[1]], "test_joules")
    assert [trace.x for trace in by_time.data] == [(1.5, 3.0)]
    assert [trace.x for trace in by_energy.data] == [(2.0, 4.0)]
    assert by_energy.layout.xaxis.title.text == "energy of training (kJ)"


def test_a_label_is_no_template_of_plotly(training):
    assert "%{x}" not in loss_figure([replace(training[0], label="%{x}")]).data[0].hovertemplate.split("<br>")[0]
