"""Recording threshold rules over a run: figures, plot and files."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from acf.bench.tracking import bench
from acf.bench.tracking.plot import tracking_svg
from acf.bench.tracking.recording import Tracked, TrackingSpec, record_tracking
from acf.errors import SparsityError
from acf.zoo.data.images import ImageSet

RUNS = [
    Tracked("dts", 0.5, 2, 80.0, {"1": [0.0, 0.2, 0.5, 0.6], "2": [0.0, 0.2, 0.4, 0.5]}),
    Tracked("static", 0.5, 2, 70.0, {"1": [0.0, 0.5, 0.9, 0.9], "2": [0.0, 0.5, 0.5, 0.5]}),
]


@pytest.fixture
def images() -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (64, 12, 12, 1), generator=generator, dtype=torch.uint8)
    labels = torch.arange(64) % 10
    return ImageSet("noise", 0, pixels, labels, pixels[:20], labels[:20])


def test_distances_leave_out_the_warm_up():
    dts, static = RUNS
    assert dts.mean_miss == pytest.approx((0.0 + 0.1 + 0.1 + 0.0) / 4)
    assert dts.worst_layer_miss == pytest.approx(0.05)
    assert static.worst_layer_miss == pytest.approx(0.4)
    assert static.drift == pytest.approx(0.2)


def test_every_step_of_every_layer_that_a_gradient_flows_back_from_is_recorded(images):
    run = record_tracking("top-k", TrackingSpec(steps=3, batch=8, warm_up_steps=1, width=16), images)
    assert len(run.layers) == 4  # three convolutions and the head; nothing flows back into the images
    assert all(len(shares) == 3 for shares in run.layers.values())
    assert run.mean_miss < 0.02  # ranking hits the target in every step


def test_the_plot_is_one_curve_per_rule_and_well_formed():
    root = ElementTree.fromstring(tracking_svg(RUNS))
    lines = [element for element in root if element.tag.endswith("polyline")]
    assert len(lines) == 2
    assert all(len(line.attrib["points"].split()) == 4 for line in lines)
    assert {"dts", "static"} <= {element.text for element in root if element.tag.endswith("text")}


def test_figures_plot_and_table_are_written(tmp_path):
    bench.keep(TrackingSpec(), RUNS, tmp_path)
    written = json.loads((tmp_path / "tracking.json").read_text())
    assert [run["method"] for run in written["runs"]] == ["dts", "static"]
    assert (tmp_path / "tracking.svg").read_text().startswith("<svg")
    assert "| static | 20.0 pp | 40.0 pp | +20.0 pp | 70.00 % |" in (tmp_path / "tracking-table.md").read_text()


@pytest.mark.parametrize(
    ("methods", "message"), [("oracle", "method 'oracle' is not one of dts"), ("", "no method is named")]
)
def test_unknown_rules_are_refused_before_data_is_read(methods, message):
    with pytest.raises(SparsityError, match=message):
        bench.run_tracking(methods, TrackingSpec(), None, visible=False)


def test_a_run_shorter_than_its_warm_up_is_refused():
    with pytest.raises(SparsityError, match="steps 60 are not above the 60 of the warm-up"):
        TrackingSpec(steps=60)
