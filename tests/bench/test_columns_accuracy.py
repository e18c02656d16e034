"""A comparison as Markdown."""

from acf.bench.accuracy.comparison import Comparison
from acf.bench.accuracy.training import RunRecord, TrainingSpec
from acf.bench.columns import accuracy_markdown


def test_the_table_has_a_row_per_method_and_the_command():
    run = RunRecord("dense", 0, accuracy=90.0, loss=1.0, seconds=1.0, sparsity=0.0)
    comparison = Comparison(TrainingSpec(), "stripes", "a machine", "2026-11-15", ["acf bench accuracy"], [run])
    text = accuracy_markdown(comparison)
    assert "| dense | 1 | 90.00 ± 0.00 % | +0.00 |" in text
    assert "stripes; a machine; 2026-11-15" in text
    assert "    acf bench accuracy" in text
