"""The bar charts show what the results counted."""

from dataclasses import replace

import pytest

from acf.report.compare import distinct_records, distinct_results
from acf.report.heat_map import utilization_figure
from acf.report.plots import (
    energy_figure,
    phases_figure,
    slots_figure,
    speedup_figure,
    time_figure,
)
from acf.report.style import ENERGY, STALLS, TRANSPARENT, named_marker

BAR_FIGURES = [time_figure, speedup_figure, slots_figure, energy_figure, phases_figure]


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
    assert sum("45 nm" in text for text in ticks) == 2
    assert all(" nm" in text for text in ticks)


def test_time_bars_are_the_seconds_of_the_results_in_the_unit_of_the_axis(results):
    figure = time_figure(results)
    assert [axis.title.text for axis in x_axes(figure)] == ["time per step (µs)"]
    assert values_of(figure, "time") == pytest.approx([result.seconds * 1e6 for result in results])


def test_speedup_is_over_the_first_result_which_has_no_bar_itself(results):
    ratios = values_of(speedup_figure(results), "speedup")
    assert ratios == pytest.approx([result.speedup_over(results[0]) for result in results[1:]])


def test_a_step_of_another_network_is_never_compared_with_the_first(results):
    other = replace(results[3], ops=tuple(replace(op, name=f"other {op.name}") for op in results[3].ops))
    faster = replace(other, architecture="twice", clock_hz=2 * other.clock_hz)
    assert values_of(speedup_figure([results[0], other, faster]), "speedup") == pytest.approx([2.0])


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


def test_workloads_named_like_numbers_or_dates_stay_names(results):
    renamed = [
        replace(result, architecture=name) for result, name in zip(results, ["16", "32", "2024-01-01"] * 2, strict=True)
    ]
    assert {axis.type for axis in time_figure(renamed).select_yaxes()} == {"category"}


def test_every_known_stall_and_component_has_a_look_of_its_own():
    assert len(set(STALLS.values())) == len(STALLS)
    assert len(set(ENERGY.values())) == len(ENERGY)


def test_a_stall_keeps_its_colour_whatever_else_is_in_the_report(results):
    def colour(reasons):
        slots = results[0].ops[0].cycles * results[0].macs_per_cycle
        op = replace(results[0].ops[0], effectual_macs=0, lost_slots=dict.fromkeys(reasons, slots))
        traces = {trace.name: trace for trace in slots_figure([replace(results[0], ops=(op,))]).data}
        return traces["lost: mesh"].marker.color, traces["lost: of a plug-in"].marker.color

    assert colour(["mesh", "of a plug-in"]) == colour(["memory", "of a plug-in", "edge", "mesh"])
    assert named_marker("of a plug-in", STALLS)["pattern"]["shape"]


def test_reasons_too_small_to_see_are_one_entry_of_the_legend(results):
    slots = results[0].ops[0].cycles * results[0].macs_per_cycle
    lost = {"memory": slots - 7, "edge": 4, "fill": 3, "drain": 0}
    small = replace(results[0], ops=(replace(results[0].ops[0], effectual_macs=0, lost_slots=lost),))
    figure = slots_figure([small])
    assert [trace.name for trace in figure.data] == ["effectual", "lost: memory", "lost: other"]
    assert sum(trace.x[0] for trace in figure.data) == pytest.approx(100)


def test_times_that_span_decades_have_a_logarithmic_axis(results):
    slow = replace(results[1], clock_hz=1e6)
    assert {axis.type for axis in time_figure([results[0], slow]).select_xaxes()} == {"log"}
    assert {axis.type for axis in time_figure(results[:2]).select_xaxes()} == {None}


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


def test_the_same_architecture_at_two_clocks_becomes_two_machines(results):
    faster = replace(results[0], clock_hz=1e9)
    names = [result.architecture for result in distinct_results([results[0], faster, results[3]])]
    assert names == ["tensordash", "tensordash (2)", "tensordash"]


def test_a_repeated_result_keeps_its_own_bar(results):
    names = [result.architecture for result in distinct_results([results[0], results[0], results[0]])]
    assert names == ["tensordash", "tensordash (2)", "tensordash (3)"]


def test_repeated_training_labels_are_numbered(training):
    assert [record.label for record in distinct_records([training[0]] * 2)] == ["dense", "dense (2)"]
