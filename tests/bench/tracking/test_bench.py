"""The command: rules are checked first; figures, plot and table are written."""

import json

import pytest

from acf.bench.tracking import bench
from acf.bench.tracking.recording import Tracked, TrackingSpec
from acf.errors import SparsityError

RUNS = [
    Tracked("dts", 0.5, 2, 80.0, {"1": [0.0, 0.2, 0.5, 0.6], "2": [0.0, 0.2, 0.4, 0.5]}),
    Tracked("static", 0.5, 2, 70.0, {"1": [0.0, 0.5, 0.9, 0.9], "2": [0.0, 0.5, 0.5, 0.5]}),
]


def test_figures_plot_and_table_are_written(tmp_path):
    bench.keep(TrackingSpec(), RUNS, tmp_path)
    written = json.loads((tmp_path / "tracking.json").read_text())["data"]
    assert [run["method"] for run in written["runs"]] == ["dts", "static"]
    assert (tmp_path / "tracking.svg").read_text().startswith("<svg")
    assert "| static | 20.0 pp | 40.0 pp | +20.0 pp | 70.00 % |" in (tmp_path / "tracking-table.md").read_text()


@pytest.mark.parametrize(
    ("methods", "message"), [("oracle", "method 'oracle' is not one of dts"), ("", "no method is named")]
)
def test_unknown_rules_are_refused_before_data_is_read(methods, message):
    with pytest.raises(SparsityError, match=message):
        bench.run_tracking(methods, TrackingSpec(), None, visible=False)
