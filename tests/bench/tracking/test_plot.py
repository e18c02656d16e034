"""The plot of achieved sparsity."""

import xml.etree.ElementTree as ElementTree

from acf.bench.tracking.plot import tracking_svg
from acf.bench.tracking.recording import Tracked

RUNS = [
    Tracked("dts", 0.5, 2, 80.0, {"1": [0.0, 0.2, 0.5, 0.6], "2": [0.0, 0.2, 0.4, 0.5]}),
    Tracked("static", 0.5, 2, 70.0, {"1": [0.0, 0.5, 0.9, 0.9], "2": [0.0, 0.5, 0.5, 0.5]}),
]


def test_the_plot_is_one_curve_per_rule_and_well_formed():
    root = ElementTree.fromstring(tracking_svg(RUNS))
    lines = [element for element in root if element.tag.endswith("polyline")]
    assert len(lines) == 2
    assert all(len(line.attrib["points"].split()) == 4 for line in lines)
    assert {"dts", "static"} <= {element.text for element in root if element.tag.endswith("text")}
