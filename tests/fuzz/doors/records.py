"""Records of commands: drawn by `acf report`, and gone on with by the benchmarks that wrote them."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from acf.bench.accuracy.comparison import Comparison
from acf.bench.columns import accuracy_markdown
from acf.bench.epochs.figures import play_traces
from acf.bench.fabric.ablation_runs import _stored_points
from acf.bench.fabric.zeros import read_zeros
from acf.bench.zeros.record import add_to_record
from tests.fuzz.doors.command import run_command
from tests.fuzz.doors.traces import compile_loops, tiny_trace
from tests.fuzz.values import damaged, mutated

RESULTS = Path(__file__).parents[3] / "docs" / "results"
MOST_RECORD_BYTES = 60_000


@cache
def _records() -> list[tuple[str, Any]]:
    small = (path for path in sorted(RESULTS.glob("*.json")) if path.stat().st_size <= MOST_RECORD_BYTES)
    return [(path.name, json.loads(path.read_text())) for path in small]


@cache
def _record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


@cache
def _made_records(folder: Path) -> list[tuple[str, Any]]:
    """Records of kinds that the documentation does not hold: results, comparisons, a demo's training run."""
    compile_loops()
    trace = str(tiny_trace(folder))
    result = json.loads(run_command("simulate", trace, "--on", "acf-1", "--json"))
    comparison = json.loads(run_command("compare", trace, "--on", "tensordash", "--json"))
    run = {
        "label": "run", "test_accuracy": 0.5, "weight_sparsity": 0.5, "losses": [1.0, 0.5],
        "test_accuracies": [[1, 0.5]], "moved_blocks": [[1, 3]], "seconds": 1.0, "test_seconds": [1.0],
        "test_joules": [2.0],
        "masks": [{"step": 1, "layer": "fc", "rows": 2, "columns": 4, "packed": "b0"}],
    }  # fmt: skip
    demo = {"records": [run], "results": result["data"], "report": "x"}
    envelope = {key: value for key, value in result.items() if key not in ("kind", "data")}
    return [
        ("result.json", result),
        ("comparison.json", comparison),
        ("run.json", {**envelope, "kind": "training-run", "data": [run]}),
        ("demo.json", {**envelope, "kind": "demo", "data": demo}),
    ]


def spoilt_json(rng: Random, document: Any, path: Path) -> Path:
    """A JSON file with some values changed, or damaged bytes."""
    if rng.random() < 0.15:
        path.write_bytes(damaged(rng, json.dumps(document).encode()))
        return path
    for _ in range(rng.choice((1, 1, 2, 4))):
        document = mutated(rng, document)
    path.write_text(json.dumps(document))
    return path


def report(rng: Random, folder: Path) -> None:
    """A record of any command on the page of `acf report`; no figure on it is NaN or infinite."""
    name, document = rng.choice(_records() + _made_records(folder))
    path, page = spoilt_json(rng, document, folder / name), folder / "report.html"
    page.unlink(missing_ok=True)
    run_command("report", str(path), "--out", str(page))
    if page.exists():
        assert_no_nan(page.read_text())


def assert_no_nan(page: str) -> None:
    """What a reader sees holds no figure such as nan or inf."""
    import re

    shown = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    words = re.findall(r">\s*[-+]?(nan|inf|infinity)\b[^<]{0,6}<", shown, flags=re.IGNORECASE)
    assert not words, f"the page shows {words[:3]}"


def accuracy_record(rng: Random, folder: Path) -> None:
    """The record that `acf bench accuracy` goes on with."""
    comparison = Comparison.load(spoilt_json(rng, _record("accuracy-small.json"), folder / "accuracy.json"))
    comparison.pending(["dense"], [0])
    comparison.save(folder / "again.json")
    accuracy_markdown(comparison)


def training_record(rng: Random, folder: Path) -> None:
    """Records of `acf bench training`, shown together and merged."""
    path = spoilt_json(rng, _record("training-resnet18.json"), folder / "training.json")
    run_command("bench", "training", "--render", str(path), "--out", "merged.json", "--plot", "plot.svg")


def zeros_record(rng: Random, folder: Path) -> None:
    """The record of `acf bench zeros`, added to or read for the layers of a step."""
    path = spoilt_json(rng, _record("zeros.json"), folder / "zeros.json")
    if rng.random() < 0.5:
        add_to_record(path, {"vgg8": {"variants": []}})
    else:
        read_zeros.cache_clear()
        read_zeros(path, rng.choice(("resnet50", "transformer", "vgg16", "nonsense")), rng.choice((0.0, 0.9)))


def ablation_record(rng: Random, folder: Path) -> None:
    """The record that `acf bench ablation` goes on with, and its table and page."""
    import acf
    from acf.metrics import AblationRecord
    from acf.tables import ablation_table

    stored = _record("ablations-memory.json")
    data = stored.get("data", stored) if isinstance(stored, dict) else stored
    listed = data.get("records", data) if isinstance(data, dict) else data
    first = listed[0] if isinstance(listed, list) else listed
    path = spoilt_json(rng, first, folder / "ablation.json")
    points = _stored_points(path)
    if points:
        record = AblationRecord.from_dict(json.loads(path.read_text()))
        ablation_table(record)
        acf.report([], folder / "ablation.html", ablations=[record])


def epochs_record(rng: Random, folder: Path) -> None:
    """The list of traces that `acf epochs --stage play` plays."""
    compile_loops()
    trace = tiny_trace(folder).name
    document = [{"epoch": epoch, "loss": 1.0, "accuracy": 0.5, "trace": trace} for epoch in (0, 1)]
    spoilt_json(rng, document, folder / "training.json")
    play_traces(folder, lambda what, share: None)
