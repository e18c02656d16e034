"""Simulate the traces of many epochs: what skipping zeros gains as training goes on, as a record and a plot."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acf.bench import OnProgress
from acf.bench.epochs.training import TRAINING_FILE
from acf.bench.traces import TraceFigures, figures_of
from acf.errors import DataError
from acf.files import write_whole
from acf.records import Diverged, parse_json, read_value, write_record
from acf.trace import Trace

RECORD_FILE = "epochs.json"
PLOT_FILE = "epochs.html"


@dataclass(frozen=True)
class EpochFigures:
    """One point of the curve: ``accuracy`` is on held-out examples, the rest as in `TraceFigures`."""

    epoch: int
    loss: float
    accuracy: float
    figures: TraceFigures

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _TrainedEpoch:
    """An entry of the file that training wrote: ``trace`` is the name of a file beside it."""

    epoch: int
    loss: Diverged
    accuracy: float
    trace: str
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if Path(self.trace).name != self.trace:
            raise ValueError(f"trace {self.trace!r} is no file beside it")


def _figures(path: Path) -> TraceFigures:
    figures = figures_of(Trace.load(path))
    missing = [role for role in ("activation", "gradient") if role not in figures.zeros]
    if missing:
        raise DataError(f"{path} has no {missing[0]}s, so it is of no training step; train into this folder again")
    return figures


def play_traces(folder: Path, on_progress: OnProgress) -> list[EpochFigures]:
    """Simulate every trace of ``folder``, one in memory at a time, and write record and plot beside them."""
    path = folder / TRAINING_FILE
    try:
        points = read_value(list[_TrainedEpoch], parse_json(path.read_text(encoding="utf-8")), "epochs")
        if not points:
            raise ValueError("it names none")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} does not say which traces to play ({error}); train into this folder first") from error
    played = []
    for point in points:
        played.append(EpochFigures(point.epoch, point.loss, point.accuracy, _figures(folder / point.trace)))
        on_progress(f"play epoch {point.epoch}", len(played) / len(points))
    write_record(folder / RECORD_FILE, "epochs", [each.to_dict() for each in played])
    write_whole(folder / PLOT_FILE, epochs_page(played).encode())
    return played


def epochs_page(points: list[EpochFigures]) -> str:
    """One offline HTML page: speedups and zeros over epochs, one above the other."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    epochs = [point.epoch for point in points]
    speedups = {
        "tensordash, compute": [point.figures.tensordash["compute"] for point in points],
        "tensordash, with DRAM": [point.figures.tensordash["step"] for point in points],
        "spartann, BP and WU": [point.figures.spartann for point in points],
        "acf-512": [point.figures.fabric for point in points],
    }
    shares = {
        "zero activations": [100 * point.figures.zeros["activation"] for point in points],
        "zero gradients": [100 * point.figures.zeros["gradient"] for point in points],
        "accuracy, held out": [100 * point.accuracy for point in points],
    }
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for row, curves in enumerate((speedups, shares), start=1):
        for name, values in curves.items():
            figure.add_trace(go.Scatter(x=epochs, y=values, name=name, mode="lines+markers"), row=row, col=1)
    figure.update_yaxes(title="times as fast as dense", row=1, col=1)
    figure.update_yaxes(title="%", row=2, col=1)
    figure.update_xaxes(title="epochs of training before the captured step", row=2, col=1)
    figure.update_layout(title=points[-1].figures.label, template="plotly_white", height=800)
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page
