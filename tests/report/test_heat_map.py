"""The heat maps show U and time of every layer and phase."""

from dataclasses import replace

import pytest

from acf.report.heat_map import heat_map_width_px, layer_time_figure, utilization_figure


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


def test_the_time_of_a_layer_stands_in_its_cell_and_its_share_colours_it(results):
    (cells,) = layer_time_figure(results[:1]).data
    op = results[0].ops[0]
    assert cells.z[0][0] == pytest.approx(100 * op.cycles / results[0].cycles, abs=0.05)
    assert cells.text[0][0] == "2 µs"


def test_the_shape_of_a_layer_stands_in_the_hover_text(results):
    shaped = replace(results[0], ops=(replace(results[0].ops[0], shape="linear, 64x10, 10x128"),))
    assert "linear, 64x10, 10x128" in layer_time_figure([shaped]).data[0].hovertext[0][0]
