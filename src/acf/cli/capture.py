"""`acf capture`, `acf traces` and `acf epochs`: traces of real training, and what they hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import DataFolder, DataSet, Json, print_json, print_outcome
from acf.cli.specs import spec_command
from acf.errors import AcfError
from acf.run_folder import only_process_in

if TYPE_CHECKING:
    from acf.bench import OnProgress
    from acf.bench.epochs.training import EpochSpec
    from acf.zoo.capture import CapturedStep, CaptureSpec

app = typer.Typer()


@spec_command(app, spec="acf.zoo.capture:CaptureSpec")
def capture(
    spec: "CaptureSpec",
    out: Annotated[Path, typer.Option(help="The trace to write.")] = Path("trace.safetensors"),
    data: DataFolder = None,
    data_set: DataSet = "",
    as_json: Json = False,
) -> None:
    """Train a known network on real data for some steps, then capture one step as a trace; or capture your own model.

    \b
    acf capture resnet50 --steps 20 --out resnet50.safetensors
    acf capture my_model:build --out mine.safetensors   # build() returns (model, inputs, labels) or (model, loss_of)
    """
    from acf.terminal import progress

    captured, lines = [], []
    with progress(visible=not as_json) as on_progress:
        for step in _captured(spec, data, data_set, on_progress):
            path = out if spec.is_own or step.step == spec.steps else out.with_stem(f"{out.stem}-{step.step}")
            step.trace.save(path)
            captured.append({"trace": str(path), "label": step.trace.label, "step": step.step, "loss": step.loss})
            lines.append(f"{path}: {step.trace.label}; {len(step.trace.ops)} operations, loss {step.loss:.3f}")
    if as_json:
        print_json("capture", captured)
    else:
        typer.echo("\n".join(lines))


def _captured(
    spec: "CaptureSpec", data: Path | None, data_set: str, on_progress: "OnProgress"
) -> "Iterator[CapturedStep]":
    """The captured steps of a known network, or the one of the user's own."""
    from acf.zoo.capture import captured_steps
    from acf.zoo.data import load_training_data
    from acf.zoo.own_model import capture_own

    if spec.is_own:
        on_progress(f"capture {spec.model}", 0.0)
        yield capture_own(spec.model)
    else:
        yield from captured_steps(spec, load_training_data(spec.kind, data, data_set), on_progress)


@app.command()
def traces(
    files: Annotated[list[Path], typer.Argument(help="Traces that `acf capture` or Trace.save wrote.")],
    as_json: Json = False,
) -> None:
    """Show the zeros of every trace by operand and pass, and what machines that skip them gain."""
    from acf.bench.columns import trace_table
    from acf.bench.traces import figures_of
    from acf.terminal import progress
    from acf.trace import Trace

    figures = []
    with progress(visible=not as_json) as on_progress:
        for place, path in enumerate(files):
            trace = Trace.load(path)

            def on_part(what: str, share: float, place: int = place, label: str = trace.label) -> None:
                on_progress(f"{label}: {what}", (place + share) / len(files))

            figures.append(figures_of(trace, on_part))
    print_outcome("traces", [vars(each) for each in figures], trace_table(figures), as_json)


@spec_command(app, spec="acf.bench.epochs.training:EpochSpec")
def epochs(
    spec: "EpochSpec",
    out: Annotated[Path, typer.Option(help="Folder for traces, record and plot.")] = Path("runs/epochs"),
    data: DataFolder = None,
    data_set: DataSet = "",
    stage: Annotated[str, typer.Option(help="both; train: only capture; play: only play what was captured.")] = "both",
    as_json: Json = False,
) -> None:
    """Train a small VGG for whole epochs, capture a step on the way, and show what skipping zeros gains over time."""
    from acf.bench.columns import epoch_table
    from acf.bench.epochs.training import captured_epochs, keep_traces
    from acf.terminal import progress
    from acf.zoo.data import load_training_data

    if stage not in ("both", "train", "play"):
        raise AcfError(f"stage {stage!r} is not one of both, train, play; use one of these names")
    with only_process_in(out), progress(visible=not as_json) as on_progress:
        if stage != "play":
            training_data = load_training_data("image", data, data_set)
            keep_traces(captured_epochs(spec, training_data), out, on_progress, spec.epochs)
        if stage == "train":
            return
        from acf.bench.epochs.figures import PLOT_FILE, play_traces  # a machine that only trains may lack the simulator

        points = play_traces(out, on_progress)
    print_outcome("epochs", [point.to_dict() for point in points], epoch_table(points), as_json)
    if not as_json:
        typer.echo(f"plot: {out / PLOT_FILE}")
