"""The commands `acf bench ...`: what this machine and the modelled ones do, as figures."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.groups import AcfGroup
from acf.cli.options import DataFolder, Json, print_json, print_outcome, save_json, split_list
from acf.cli.specs import spec_command
from acf.records import values_of
from acf.run_folder import only_process_in, only_process_writing

if TYPE_CHECKING:
    from acf.bench.accuracy.bench import AccuracyOptions
    from acf.bench.accuracy.training import TrainingSpec
    from acf.bench.evaluation.bench import CnnOptions, EvaluationOptions, ResNet50Options, TransformerOptions
    from acf.bench.fabric.ablation_runs import AblationOptions
    from acf.bench.fabric.comparison import ComparisonSpec
    from acf.bench.kernels.bench import CpuOptions
    from acf.bench.offloading import OffloadSpec
    from acf.bench.pong.bench import PongOptions
    from acf.bench.pong.settings import DqnSettings
    from acf.bench.tracking.recording import TrackingSpec
    from acf.bench.training.bench import TrainingOptions
    from acf.bench.zeros.measure import ZerosSpec
    from acf.metrics import AblationRecord

app = typer.Typer(help="Measure this machine.", no_args_is_help=True, cls=AcfGroup)


@spec_command(app, cpu="acf.bench.kernels.bench:CpuOptions")
def kernels(
    cpu: "CpuOptions",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where torch can use one.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the record and the roofline.")] = Path("runs/bench"),
    sections: Annotated[
        str,
        typer.Option(help="CUDA: correctness, layers, bias, narrow, norms, conv, overhead, steps, experts, two_four."),
    ] = "correctness,layers,norms,conv,overhead,steps",
    as_json: Json = False,
) -> None:
    """Time the block-sparse kernels against the dense libraries of this machine, as ratios from one run."""
    from acf.bench.kernels.bench import run_on_cpu, run_on_cuda, use_cuda

    with only_process_in(out):
        if use_cuda(device):
            run_on_cuda(sections, out, as_json)
        else:
            run_on_cpu(cpu, out, as_json)


@spec_command(app, options="acf.bench.accuracy.bench:AccuracyOptions", spec="acf.bench.accuracy.training:TrainingSpec")
def accuracy(options: "AccuracyOptions", spec: "TrainingSpec", as_json: Json = False) -> None:
    """Train each method on real images with several seeds and compare the accuracies with dense training."""
    from acf.bench.accuracy.bench import compare_methods
    from acf.bench.columns import accuracy_table

    comparison = compare_methods(spec, options, visible=not as_json)
    print_outcome("accuracy", comparison.to_dict(), accuracy_table(comparison), as_json)


@spec_command(app, options="acf.bench.training.bench:TrainingOptions")
def training(options: "TrainingOptions", as_json: Json = False) -> None:
    """Train dense and sparse variants in turns, or show records of such runs: seconds, joules, memory and quality."""
    from acf.bench.columns import training_tables
    from acf.bench.training.bench import run_training_bench
    from acf.terminal import progress, show

    with progress(visible=not as_json and not options.render) as on_progress:
        comparison = run_training_bench(options, on_progress)
    if as_json:
        print_json("training", comparison.to_dict())
        return
    for table in training_tables(comparison):
        show(table)


@spec_command(app, options="acf.bench.pong.bench:PongOptions", settings="acf.bench.pong.settings:DqnSettings")
def pong(options: "PongOptions", settings: "DqnSettings", as_json: Json = False) -> None:
    """Train DQN on Atari Pong, dense and block-sparse, or show such runs: frames per second, score, joules and U."""
    from acf.bench.pong.bench import run_pong_bench
    from acf.bench.pong.tables import pong_tables
    from acf.terminal import progress, show

    with progress(visible=not as_json) as on_progress:
        store = run_pong_bench(options, settings, on_progress)
    if as_json:
        print_json("pong", store.to_dict())
    else:
        for table in pong_tables(store):
            show(table)
    store.close()


@spec_command(app, options="acf.bench.evaluation.bench:ResNet50Options")
def resnet50(options: "ResNet50Options", as_json: Json = False) -> None:
    """ResNet-50, dense and sparse: throughput, time to accuracy, energy, top-1/2/5, its steps on other machines."""
    _evaluate(options, as_json)


@spec_command(app, options="acf.bench.evaluation.bench:TransformerOptions")
def transformer(options: "TransformerOptions", as_json: Json = False) -> None:
    """Transformer-Base, dense and sparse: throughput, time to quality, energy, BLEU, its steps on other machines."""
    _evaluate(options, as_json)


@spec_command(app, options="acf.bench.evaluation.bench:CnnOptions")
def cnn(options: "CnnOptions", as_json: Json = False) -> None:
    """SparTANN's small CNNs, dense and with sparse gradients: accuracy, loss curves, gradient density by layer."""
    _evaluate(options, as_json)


def _evaluate(options: "EvaluationOptions", as_json: bool) -> None:
    from acf.bench.evaluation.bench import run_evaluation
    from acf.bench.evaluation.columns import evaluation_terminals
    from acf.bench.evaluation.ranks import is_first_process
    from acf.terminal import progress, show

    first = is_first_process()
    reading = values_of(str(options.folder)) if options.render else nullcontext()
    with progress(visible=first and not as_json and not options.render) as on_progress, reading:
        table = run_evaluation(options, on_progress)
    if not first:
        return
    if as_json:
        print_json("evaluation", asdict(table))
        return
    for each in evaluation_terminals(table):
        show(each)
    for note in table.notes:
        typer.echo(note)


@spec_command(app, spec="acf.bench.tracking.recording:TrackingSpec")
def tracking(
    spec: "TrackingSpec",
    methods: Annotated[str, typer.Option(help="Threshold rules, separated by commas.")] = "dts,gaussian,static",
    data: Annotated[Path | None, typer.Option(envvar="ACF_DATA", help="Folder that holds fashion-mnist/.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tracking.json, .svg and the table.")] = None,
    as_json: Json = False,
) -> None:
    """Record how closely threshold rules follow their target while a small network trains on Fashion-MNIST (CPU)."""
    from acf.bench.columns import tracking_table
    from acf.bench.tracking.bench import figures, keep, run_tracking

    with only_process_in(out):
        runs = run_tracking(methods, spec, data, visible=not as_json)
        if out is not None:
            keep(spec, runs, out)
    print_outcome("tracking", figures(spec, runs), tracking_table(runs), as_json)


@spec_command(app, spec="acf.bench.zeros.measure:ZerosSpec")
def zeros(
    spec: "ZerosSpec",
    data: DataFolder = None,
    runs: Annotated[
        Path | None, typer.Option(help="Count in traced steps of this folder of runs instead; nothing is trained.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Record to write; networks already in it are kept.")] = None,
    as_json: Json = False,
) -> None:
    """Train a known network with several seeds and count the zeros of every layer in a captured step (CPU)."""
    from acf.bench.columns import zeros_table
    from acf.bench.zeros.kept_runs import runs_record, zeros_of_runs
    from acf.bench.zeros.measure import measure_zeros
    from acf.bench.zeros.record import add_to_record, zeros_record
    from acf.terminal import progress
    from acf.zoo.data import load_training_data
    from acf.zoo.networks import NETWORKS

    with only_process_writing(out):
        if runs is not None:
            measured = zeros_of_runs(runs, spec.model)
            record = runs_record(runs, spec.model, measured)
            record = record if out is None else add_to_record(out, record)
            print_outcome("zeros", record, zeros_table(measured), as_json)
            return
        training_data = load_training_data(NETWORKS[spec.model].reads, data)
        measured, record = [], {}
        with progress(visible=not as_json) as on_progress:
            for variant in measure_zeros(spec, training_data, on_progress):
                measured.append(variant)
                record = zeros_record(spec, measured)
                if out is not None:  # variants take minutes: keep each at once
                    record = add_to_record(out, record)
    print_outcome("zeros", record, zeros_table(measured), as_json)


@app.command()
def simulators(
    trace: Annotated[list[Path] | None, typer.Option(help="A captured trace to time too; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Time the TensorDash model: one 512-filter layer at growing batch, and a whole ResNet-50 training step."""
    from acf.bench.columns import simulator_table
    from acf.bench.simulators import run_simulator_bench
    from acf.terminal import progress

    with progress(visible=not as_json) as on_progress:
        timings = run_simulator_bench(on_progress, captured=trace or ())
    print_outcome("simulators", [timing.to_dict() for timing in timings], simulator_table(timings), as_json)


@spec_command(app, options="acf.bench.fabric.ablation_runs:AblationOptions")
def ablation(
    options: "AblationOptions",
    what: Annotated[
        str,
        typer.Option(
            help="Of block, regrow, interconnect, balancer, prefetch, network, memory, scus, with commas; or all."
        ),
    ] = "all",
    out: Annotated[Path, typer.Option(help="Folder for records and plots; a later call goes on from them.")] = Path(
        "runs/ablation"
    ),
    as_json: Json = False,
) -> None:
    """Vary one part of the fabric and measure what it is worth; exit code 1 if a point failed."""
    from acf.bench.fabric.ablation_runs import chosen_ablations, run_ablation
    from acf.report import report as write_report
    from acf.tables import ablation_table
    from acf.terminal import progress, show

    names = chosen_ablations(split_list([what]))
    records: list[AblationRecord] = []
    with only_process_in(out), progress(visible=not as_json) as on_progress:
        for name in names:

            def on_part(point: str, share: float) -> None:
                on_progress(point, (len(records) + share) / len(names))

            records.append(run_ablation(name, options, out, on_part))
        page = write_report([], out / "ablations.html", ablations=records, title="Ablations of the fabric")
    if as_json:
        print_json("ablations", [record.to_dict() for record in records])
    else:
        for record in records:
            show(ablation_table(record))
        typer.echo(f"report: {page}")
    if any(record.failed for record in records):
        raise typer.Exit(1)


@spec_command(app, spec="acf.bench.fabric.comparison:ComparisonSpec")
def fabric(
    spec: "ComparisonSpec",
    layers: Annotated[bool, typer.Option(help="Also every product on the fabric, and what it lost most to.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
    as_json: Json = False,
) -> None:
    """Simulate whole training steps on a fabric and on machines of equal peak: time, energy, utilisation, and why."""
    from acf.bench.columns import fabric_products_table, fabric_table
    from acf.bench.fabric.comparison import compare_steps
    from acf.terminal import progress, show

    with progress(visible=not as_json) as on_progress:
        played = compare_steps(spec.steps, spec.on, spec.gpus, on_progress, spec.update)
    figures = [each.to_dict() for each in played]
    save_json("fabric", figures, out)
    if as_json:
        print_json("fabric", figures)
        return
    show(fabric_table(played, spec.on))
    for each in played:
        if layers and each.machine == spec.on:
            show(fabric_products_table(each))


@spec_command(app, spec="acf.bench.offloading:OffloadSpec")
def offload(spec: "OffloadSpec", as_json: Json = False) -> None:
    """Train on a simulated device beside the host: losses and time of every step; or the speed of a ResNet-18 step."""
    from acf.bench.offloading import run_offload_bench
    from acf.terminal import progress

    with progress(visible=not as_json) as on_progress:
        figures, text = run_offload_bench(spec, on_progress)
    if as_json:
        print_json("offload", figures)
    else:
        typer.echo(text)
