"""The figures show what the results counted."""

import math
from dataclasses import replace

import pytest

from acf.report.compare import distinct_records, distinct_results
from acf.report.curves import CURVE_POINTS, smoothed, smoothing_steps
from acf.report.plots import (
    accuracy_figure,
    energy_figure,
    heat_map_width_px,
    loss_figure,
    moved_blocks_figure,
    phases_figure,
    slots_figure,
    speedup_figure,
    time_figure,
    utilization_figure,
)
from acf.report.style import PALETTE, TRANSPARENT

BAR_FIGURES = [time_figure, speedup_figure, slots_figure, energy_figure, phases_figure]
CURVE_FIGURES = [loss_figure, accuracy_figure, moved_blocks_figure]


def values_of(figure, name):
    """The values of one series, panel after panel."""
    return [value for trace in figure.data if trace.name == name for value in trace.x]


def x_axes(figure):
    return [axis for axis in figure.select_xaxes() if axis.title.text]


@pytest.mark.parametrize("make_figure", BAR_FIGURES)
def test_every_bar_chart_has_a_panel_for_each_workload_and_a_row_for_each_architecture(make_figure, results):
    figure = make_figure(results)
    assert [note.text for note in figure.layout.annotations] == ["dense", "sparse 90 %"]
    assert {name for trace in figure.data for name in trace.y} == {"tensordash", "procrustes", "mesh-8x8"}


@pytest.mark.parametrize("make_figure", BAR_FIGURES)
def test_clock_and_technology_node_stand_beside_every_architecture(make_figure, results):
    ticks = [text for axis in make_figure(results).select_yaxes() for text in axis.ticktext]
    assert sum("500 MHz, 65 nm" in text for text in ticks) == 2
    assert len(ticks) == len(results)


def test_time_bars_are_the_seconds_of_the_results_in_the_unit_of_the_axis(results):
    figure = time_figure(results)
    assert [axis.title.text for axis in x_axes(figure)] == ["time per step (µs)"]
    assert values_of(figure, "time") == pytest.approx([result.seconds * 1e6 for result in results])


def test_speedup_is_over_the_first_workload_on_the_same_architecture(results):
    ratios = values_of(speedup_figure(results), "speedup")
    assert ratios[:3] == [1, 1, 1]
    assert ratios[3:] == pytest.approx([results[i + 3].speedup_over(results[i]) for i in range(3)])


def test_an_architecture_that_never_played_the_first_workload_has_no_speedup(results):
    figure = speedup_figure([results[0], *results[3:]])
    assert [list(trace.y) for trace in figure.data] == [["tensordash"], ["tensordash"]]


def test_mac_slots_of_every_bar_add_up_to_100_percent(results):
    figure = slots_figure(results)
    names = ["effectual", "lost: memory", "lost: sync"]
    sums = [sum(parts) for parts in zip(*(values_of(figure, name) for name in names), strict=True)]
    assert sums == pytest.approx([100] * len(results))
    assert values_of(figure, "effectual") == pytest.approx([100 * result.utilization for result in results])


def test_energy_bars_are_the_joules_of_each_component(results):
    figure = energy_figure(results)
    assert [axis.title.text for axis in x_axes(figure)] == ["energy per step (µJ)"]
    expected = [result.energy_breakdown_j["dram"] * 1e6 for result in results]
    assert values_of(figure, "dram") == pytest.approx(expected)


def test_each_energy_bar_is_followed_by_its_total(results):
    totals = [text for trace in energy_figure(results).data if trace.name == "total" for text in trace.text]
    assert totals[0] == "37 µJ"
    assert len(totals) == len(results)


def test_phase_bars_add_up_to_the_cycles_of_the_step(results):
    figure = phases_figure(results)
    phases = ["forward", "input gradient", "weight gradient"]
    sums = [sum(parts) for parts in zip(*(values_of(figure, name) for name in phases), strict=True)]
    assert [1000 * value for value in sums] == pytest.approx([result.cycles for result in results])


def test_heat_map_gives_the_utilisation_of_each_layer_and_phase_in_percent(results):
    cells = utilization_figure(results[:1]).data[0]
    assert cells.y == ("conv1", "conv2", "conv3", "fc1", "fc2")
    assert cells.x == ("forward", "input<br>gradient", "weight<br>gradient")
    op = results[0].ops[4]
    assert cells.z[1][1] == pytest.approx(100 * op.effectual_macs / (op.cycles * results[0].macs_per_cycle))


def test_a_layer_that_ran_twice_is_one_row_over_all_its_slots(results):
    first = results[0].ops[0]
    idle = replace(first, effectual_macs=0)
    twice = replace(results[0], ops=(first, idle))
    cells = utilization_figure([twice]).data[0]
    assert [list(row) for row in cells.z] == [[pytest.approx(25)]]


def test_a_phase_a_layer_does_not_have_stays_an_empty_cell(results):
    without_input_gradient = replace(results[0], ops=results[0].ops[:1] + results[0].ops[2:])
    cells = utilization_figure([without_input_gradient]).data[0]
    column = cells.x.index("input<br>gradient")
    assert cells.z[0][column] is None
    assert cells.z[1][column] is not None


def test_heat_maps_ask_for_more_room_the_more_workloads_and_the_longer_names(results):
    long_name = replace(results[0], ops=(replace(results[0].ops[0], name="encoder.layers.11.query"),))
    assert heat_map_width_px(results[:2]) > heat_map_width_px(results[:1])
    assert heat_map_width_px([long_name]) > heat_map_width_px(results[:1])


def test_layers_with_long_names_stay_distinct_on_the_axis(results):
    names = [f"model.encoder.layers.{i}.self_attention.{part}_projection" for i in range(6) for part in "qk"]
    deep = replace(results[0], ops=tuple(replace(results[0].ops[0], name=name) for name in names))
    ticks = next(iter(utilization_figure([deep]).select_yaxes())).ticktext
    assert len(set(ticks)) == 12
    assert max(map(len, ticks)) <= 36


def test_workloads_named_like_numbers_or_dates_stay_names(results):
    renamed = [
        replace(result, architecture=name) for result, name in zip(results, ["16", "32", "2024-01-01"] * 2, strict=True)
    ]
    assert {axis.type for axis in time_figure(renamed).select_yaxes()} == {"category"}


def test_more_reasons_than_colours_are_told_apart_by_hatching(results):
    slots = results[0].ops[0].cycles * results[0].macs_per_cycle
    lost = {f"reason {i}": slots // 20 for i in range(20)}
    many = replace(results[0], ops=(replace(results[0].ops[0], effectual_macs=0, lost_slots=lost),))
    looks = [(trace.marker.color, trace.marker.pattern.shape) for trace in slots_figure([many]).data]
    assert len(set(looks)) == 21


def test_markup_in_a_name_is_shown_as_letters(results):
    hostile = replace(results[0], architecture="<a href='x'>y</a>", workload="<b>&</b>")
    figure = time_figure([hostile])
    assert figure.layout.annotations[0].text == "&lt;b&gt;&amp;&lt;/b&gt;"
    assert figure.data[0].y == ("&lt;a href='x'&gt;y&lt;/a&gt;",)
    assert "<a" not in figure.data[0].hovertext[0]


@pytest.mark.parametrize("make_figure", [*BAR_FIGURES, utilization_figure])
def test_backgrounds_are_transparent_so_that_both_colour_schemes_show_through(make_figure, results):
    layout = make_figure(results).layout.template.layout
    assert (layout.paper_bgcolor, layout.plot_bgcolor) == (TRANSPARENT, TRANSPARENT)


@pytest.mark.parametrize("make_figure", [time_figure, slots_figure, energy_figure, phases_figure, utilization_figure])
def test_a_step_without_operations_still_makes_a_figure(make_figure, results):
    assert make_figure([replace(results[0], ops=())]).layout.height > 0


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


def test_the_same_architecture_at_two_clocks_becomes_two_machines(results):
    faster = replace(results[0], clock_hz=1e9)
    names = [result.architecture for result in distinct_results([results[0], faster, results[3]])]
    assert names == ["tensordash", "tensordash (2)", "tensordash"]


def test_a_repeated_result_keeps_its_own_bar(results):
    names = [result.architecture for result in distinct_results([results[0], results[0], results[0]])]
    assert names == ["tensordash", "tensordash (2)", "tensordash (3)"]


def test_repeated_training_labels_are_numbered(training):
    assert [record.label for record in distinct_records([training[0]] * 2)] == ["dense", "dense (2)"]
