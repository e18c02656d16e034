"""The command `acf`: thin commands over the library. Torch and the simulator are imported when a command needs them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acf import __version__
from acf.cli.bench import bench
from acf.cli.options import Json, print_json
from acf.cli.rtl import app as rtl
from acf.errors import AcfError, ArchitectureError
from acf.files import write_whole

if TYPE_CHECKING:
    from acf.nn import LayerTiming
    from acf.sim import Result

app = typer.Typer(
    name="acf",
    help="Train neural networks with dynamic block sparsity, and play the same run on modelled hardware.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(rtl, name="rtl")

TraceFile = Annotated[Path, typer.Argument(help="A trace that `acf capture`, `acf demo` or Trace.save wrote.")]
SaveFile = Annotated[Path | None, typer.Option("--save", help="Write the results as JSON, for `acf report`.")]


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    try:
        app()
    except AcfError as error:
        print(f"acf: {error}", file=sys.stderr)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where traces and the report go.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each run.")] = 660,
    sparsity: Annotated[float, typer.Option(help="Share of blocks to drop, in [0, 1).")] = 0.9,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a small CNN dense and block-sparse, capture a step of each, simulate it, write a report."""
    from acf.demo import DemoSpec, run_demo
    from acf.tables import demo_table
    from acf.terminal import progress, show

    spec = DemoSpec(steps=steps, sparsity=sparsity, seed=seed)
    with progress(visible=not as_json) as on_progress:
        outcome = run_demo(spec, folder, on_progress)
    if as_json:
        print_json(
            {
                "records": [vars(record) for record in outcome.records],
                "results": [result.to_dict() for result in outcome.results],
                "report": str(outcome.report_path),
            }
        )
        return
    show(demo_table(outcome))
    typer.echo(f"report: {outcome.report_path}")


@app.command()
def simulate(
    trace: TraceFile,
    on: Annotated[str, typer.Option("--on", help="An architecture's name, or a .toml file.")] = "acf-512",
    exact: Annotated[bool, typer.Option("--exact", help="Fabrics: step every queue in every cycle.")] = False,
    save: SaveFile = None,
    as_json: Json = False,
) -> None:
    """Play a trace on one architecture and show every operation."""
    from acf.sim import simulate as play
    from acf.sim.exact import exact_engine
    from acf.tables import result_table
    from acf.terminal import show
    from acf.trace import Trace

    result = play(Trace.load(trace), exact_engine(on) if exact else on)
    _save_results([result], save)
    if as_json:
        print_json(result.to_dict())
    else:
        show(result_table(result))


@app.command()
def compare(
    trace: TraceFile,
    on: Annotated[
        list[str] | None, typer.Option("--on", help="An architecture; may be repeated. Default: all.")
    ] = None,
    baseline: Annotated[str, typer.Option(help="What speedups refer to.")] = "tensorcore",
    save: SaveFile = None,
    as_json: Json = False,
) -> None:
    """Play a trace on several architectures and show their speedups over a baseline."""
    from acf.sim import architectures
    from acf.sim import simulate as play
    from acf.tables import comparison_table
    from acf.terminal import show
    from acf.trace import Trace

    loaded = Trace.load(trace)
    names = list(dict.fromkeys([baseline, *(on or architectures())]))
    results = [play(loaded, name) for name in names]
    _save_results(results, save)
    if as_json:
        print_json([result.to_dict() | {"speedup": result.speedup_over(results[0])} for result in results])
    else:
        show(comparison_table(results))


@app.command()
def capture(
    model: Annotated[str, typer.Argument(help="A network's name, for example resnet50.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace to write.")] = Path("trace.safetensors"),
    steps: Annotated[int, typer.Option(help="Training steps before the captured one.")] = 20,
    batch: Annotated[int, typer.Option(help="Examples of a training step.")] = 4,
    captured: Annotated[int, typer.Option(help="Examples of the captured step; 0: as many as --batch.")] = 0,
    every: Annotated[int, typer.Option(help="Capture after every so many steps too, into OUTPUT-STEP.")] = 0,
    image_size: Annotated[int, typer.Option(help="Height and width that images are resized to.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW, constant.")] = 1e-4,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    sparsity: Annotated[float, typer.Option(help="Share of blocks to train without; blocks move meanwhile.")] = 0.0,
    block: Annotated[int, typer.Option(help="With --sparsity: side of a block.")] = 16,
    data: Annotated[
        Path | None, typer.Option(envvar="ACF_DATA", help="Folder of the data sets; without it: scikit-learn's digits.")
    ] = None,
    data_set: Annotated[str, typer.Option(help="Which set of the folder; default: the first that fits.")] = "",
    as_json: Json = False,
) -> None:
    """Train a known network on real data for some steps, then capture one step as a trace."""
    from acf.zoo.capture import CaptureSpec, captured_steps
    from acf.zoo.data.training_data import load_training_data

    spec = CaptureSpec(
        model,
        steps=steps,
        batch=batch,
        captured=captured,
        every=every,
        image_size=image_size,
        learning_rate=learning_rate,
        seed=seed,
        device=device,
        sparsity=sparsity,
        block=block,
    )
    training_data = load_training_data(spec.kind, data, data_set)
    for step in captured_steps(spec, training_data):
        path = output if step.step == steps else output.with_stem(f"{output.stem}-{step.step}")
        step.trace.save(path)
        if as_json:
            facts = {"trace": str(path), "label": step.trace.label, "step": step.step, "loss": step.loss}
            typer.echo(json.dumps(facts))
        else:
            typer.echo(f"{path}: {step.trace.label}; {len(step.trace.ops)} operations, loss {step.loss:.3f}")


@app.command()
def traces(
    files: Annotated[list[Path], typer.Argument(help="Traces that `acf capture` or Trace.save wrote.")],
    as_json: Json = False,
) -> None:
    """Show the zeros of every trace by operand and pass, and what machines that skip them gain."""
    from acf.bench.traces import figures_of
    from acf.tables import figures_table
    from acf.terminal import show
    from acf.trace import Trace

    figures = [figures_of(Trace.load(path)) for path in files]
    if as_json:
        print_json([vars(each) for each in figures])
    else:
        show(figures_table(figures))


@app.command()
def epochs(
    network: Annotated[str, typer.Argument(help="vgg16, vgg16-bn or vgg8, for images of 32 x 32.")] = "vgg16",
    folder: Annotated[Path, typer.Option(help="Where traces, record and plot go.")] = Path("runs/epochs"),
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 60,
    every: Annotated[int, typer.Option(help="Capture a step after every so many epochs, and before the first.")] = 1,
    batch: Annotated[int, typer.Option(help="Examples of a training step.")] = 128,
    captured: Annotated[int, typer.Option(help="Examples of a captured step.")] = 8,
    learning_rate: Annotated[float, typer.Option(help="Highest rate; it falls to 0 as a cosine.")] = 0.05,
    examples: Annotated[int, typer.Option(help="Examples to train on; 0: all that are not held out.")] = 0,
    held_out: Annotated[int, typer.Option(help="Examples that are only scored.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data: Annotated[
        Path | None, typer.Option(envvar="ACF_DATA", help="Folder of the data sets; without it: scikit-learn's digits.")
    ] = None,
    data_set: Annotated[str, typer.Option(help="Which set of the folder; default: the first that fits.")] = "",
    stage: Annotated[str, typer.Option(help="both; train: only capture; play: only play what was captured.")] = "both",
    as_json: Json = False,
) -> None:
    """Train a small VGG for whole epochs, capture a step on the way, and show what skipping zeros gains over time."""
    from acf.bench.epochs.training import EpochSpec, captured_epochs, keep_traces
    from acf.tables import epochs_table
    from acf.terminal import progress, show
    from acf.zoo.data.training_data import load_training_data

    if stage not in ("both", "train", "play"):
        raise AcfError(f"stage {stage!r} is not one of both, train, play; use one of these names")
    with progress(visible=not as_json) as on_progress:
        if stage != "play":
            spec = EpochSpec(
                network,
                epochs=epochs,
                every=every,
                batch=batch,
                captured=captured,
                learning_rate=learning_rate,
                held_out=held_out,
                examples=examples,
                seed=seed,
                device=device,
            )
            training_data = load_training_data("image", data, data_set)
            keep_traces(captured_epochs(spec, training_data), folder, on_progress, spec.epochs)
        if stage == "train":
            return
        from acf.bench.epochs.figures import (
            PLOT_FILE,
            play_traces,
        )  # a machine that only trains may lack its parts

        points = play_traces(folder, on_progress)
    if as_json:
        print_json([point.to_dict() for point in points])
    else:
        show(epochs_table(points))
        typer.echo(f"plot: {folder / PLOT_FILE}")


@app.command()
def report(
    results: Annotated[
        list[Path], typer.Argument(help="Files that --save of simulate or compare, or bench ablation, wrote.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "ACF report",
) -> None:
    """Write one offline HTML page about saved results and ablations."""
    from acf.metrics import AblationRecord
    from acf.report import report as write_report
    from acf.sim.result import Result

    saved = [values for path in results for values in _load_saved(path)]
    records = [AblationRecord.from_dict(values) for values in saved if "ablation" in values]
    loaded = [Result.from_dict(values) for values in saved if "ablation" not in values]
    typer.echo(f"report: {write_report(loaded, output, ablations=records, title=title)}")


@app.command()
def reproduce(
    only: Annotated[str, typer.Option(help="Ids of rows, separated by commas: T5,T6. Default: all.")] = "",
    as_json: Json = False,
) -> None:
    """Compute the published figures row by row; exit code 1 if one that can be reproduced is out of tolerance."""
    from acf.reproduce import ROWS
    from acf.reproduce import reproduce as compute_rows
    from acf.tables import reproduce_table
    from acf.terminal import progress, show

    names = [name.strip() for name in only.split(",") if name.strip()]
    rows = {}
    with progress(visible=not as_json) as on_progress:
        for name, row in compute_rows(names):
            rows[name] = row
            on_progress(name, len(rows) / (len(set(names)) or len(ROWS)))
    if as_json:
        print_json([{"id": name} | row.to_dict() for name, row in rows.items()])
    else:
        show(reproduce_table(rows))
    if not all(row.within for row in rows.values()):
        raise typer.Exit(1)


@app.command()
def doctor(
    layers: Annotated[
        str, typer.Option(help="module:function that returns (model, example input): time its layers dense and sparse.")
    ] = "",
    sparsity: Annotated[float, typer.Option(help="With --layers: share of blocks to drop.")] = 0.9,
    block: Annotated[int, typer.Option(help="With --layers: side of a block.")] = 32,
    cuda_graphs: Annotated[
        bool, typer.Option("--cuda-graphs", help="With --layers, on a GPU: as layers run in a captured step.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what this machine has and what works because of it; with --layers, which layers of a model pay here."""
    from acf.doctor import examine
    from acf.tables import doctor_table, layer_table
    from acf.terminal import show

    if layers:
        timings = _time_layers(layers, sparsity, block, cuda_graphs)
        if as_json:
            print_json([vars(timing) | {"ratio": timing.ratio, "pays": timing.pays} for timing in timings])
        else:
            show(layer_table(timings, sparsity, block))
        return
    findings = examine()
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        show(doctor_table(findings))


def _time_layers(builder: str, sparsity: float, block: int, cuda_graphs: bool) -> "list[LayerTiming]":
    """Call the named function for a model and its input, and time the model's layers."""
    from acf.doctor import load_builder
    from acf.nn import BlockSparsity, time_layers

    spec = BlockSparsity(sparsity, block=block)
    model, example = load_builder(builder)()
    return time_layers(model, example, spec, cuda_graphs=cuda_graphs)


def _save_results(results: "list[Result]", path: Path | None) -> None:
    if path is not None:
        write_whole(path, json.dumps([result.to_dict() for result in results], indent=2).encode())


def _load_saved(path: Path) -> list[dict[str, Any]]:
    """Results, or records of ablations, as plain values; a record may stand alone."""
    remedy = "pass a file that --save, or `acf bench ablation`, wrote"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArchitectureError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise ArchitectureError(f"{path} is not JSON ({error}); {remedy}") from error
    if isinstance(values, dict) and "ablation" in values:
        values = [values]
    if not isinstance(values, list) or not all(isinstance(item, dict) for item in values):
        raise ArchitectureError(f"{path} holds no list of results; {remedy}")
    return values
