"""The commands `acf bench ...`: what this machine and the modelled ones do, as figures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import Json, numbers, print_json
from acf.files import write_whole

if TYPE_CHECKING:
    from acf.metrics import AblationRecord

bench = typer.Typer(help="Measure this machine.", no_args_is_help=True)


@bench.command()
def kernels(
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where torch can use one.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the record and the roofline.")] = Path("runs/bench"),
    blocks: Annotated[str, typer.Option(help="CPU: block sizes.")] = "16,32,64",
    sparsities: Annotated[str, typer.Option(help="CPU: shares of blocks to drop.")] = "0.9,0.75,0.5",
    kinds: Annotated[str, typer.Option(help="CPU: of linear, conv, step.")] = "linear,conv,step",
    rounds: Annotated[int, typer.Option(min=1, help="CPU: interleaved repetitions; the best counts.")] = 9,
    dtype: Annotated[str, typer.Option(help="CPU: float32 or bfloat16.")] = "float32",
    instructions: Annotated[
        str,
        typer.Option(help="CPU: of portable, avx2, avx512, avx512bf16; layers with each in turn. Default: the best."),
    ] = "",
    sections: Annotated[
        str, typer.Option(help="CUDA: of correctness, layers, norms, conv, overhead, steps.")
    ] = "correctness,layers,norms,conv,overhead,steps",
    as_json: Json = False,
) -> None:
    """Time the block-sparse kernels against the dense libraries of this machine, as ratios from one run."""
    from acf.bench.kernels.bench import CpuOptions, run_on_cpu, run_on_cuda, use_cuda

    if use_cuda(device):
        run_on_cuda(sections, out, as_json)
    else:
        run_on_cpu(CpuOptions(blocks, sparsities, kinds, dtype, rounds, instructions), out, as_json)


@bench.command()
def accuracy(
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas: dense,dst-90,bdwp-2:8,dts-0.5. Default: ten of them.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method, from seed 0.")] = 3,
    data: Annotated[
        Path | None, typer.Option(envvar="ACF_DATA", help="Folder that holds cifar10-jpeg/ or fashion-mnist/.")
    ] = None,
    data_set: Annotated[str, typer.Option(help="cifar10-jpeg or fashion-mnist.")] = "cifar10-jpeg",
    network: Annotated[str, typer.Option(help="resnet18, or small for a CPU.")] = "resnet18",
    width: Annotated[int, typer.Option(min=1, help="Channels of the first layer.")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 16,
    batch: Annotated[int, typer.Option(min=1, help="Images of a step.")] = 256,
    learning_rate: Annotated[float, typer.Option(help="At its peak, after a fifth of the run.")] = 0.2,
    block: Annotated[int, typer.Option(min=1, help="Side of a weight block.")] = 16,
    examples: Annotated[int, typer.Option(min=0, help="Training images to use; 0: all.")] = 0,
    held_out: Annotated[
        int, typer.Option(min=0, help="Test on this many training images instead of the test part, to choose settings.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, in processes that share the device.")] = 1,
    budget: Annotated[float, typer.Option(help="Seconds after which no run may end; 0: no limit.")] = 0.0,
    out: Annotated[
        Path | None, typer.Option(help="JSON of the runs, and a Markdown table beside it; runs in it are not repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train each method on real images with several seeds and compare the accuracies with dense training."""
    from acf.bench.accuracy.bench import AccuracyOptions, compare_methods
    from acf.bench.accuracy.training import TrainingSpec
    from acf.bench.columns import accuracy_table
    from acf.terminal import show

    spec = TrainingSpec(
        data_set=data_set,
        network=network,
        width=width,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        block=block,
        examples=examples,
        held_out=held_out,
    )
    options = AccuracyOptions(methods, seeds, data, device, workers, budget, out)
    comparison = compare_methods(spec, options, visible=not as_json)
    if as_json:
        print_json(comparison.to_dict())
    else:
        show(accuracy_table(comparison))


@bench.command("tracking")
def bench_tracking(
    methods: Annotated[str, typer.Option(help="Threshold rules, separated by commas.")] = "dts,gaussian,static",
    target: Annotated[float, typer.Option(help="Share of gradient elements to zero.")] = 0.5,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each run.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and batches.")] = 0,
    data: Annotated[Path | None, typer.Option(envvar="ACF_DATA", help="Folder that holds fashion-mnist/.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tracking.json, .svg and the table.")] = None,
    as_json: Json = False,
) -> None:
    """Record how closely threshold rules follow their target while a small network trains on Fashion-MNIST (CPU)."""
    from acf.bench.tracking.bench import figures, keep, run_tracking, tracking_table
    from acf.bench.tracking.recording import TrackingSpec
    from acf.terminal import show

    spec = TrackingSpec(target=target, steps=steps, seed=seed)
    runs = run_tracking(methods, spec, data, visible=not as_json)
    if out is not None:
        keep(spec, runs, out)
    if as_json:
        print_json(figures(spec, runs))
    else:
        show(tracking_table(runs))


@bench.command()
def simulators(
    trace: Annotated[list[Path] | None, typer.Option(help="A captured trace to time too; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Time the TensorDash model: one 512-filter layer at growing batch, and a whole ResNet-50 training step."""
    from acf.bench.columns import simulator_table
    from acf.bench.simulators import run_simulator_bench
    from acf.terminal import progress, show

    with progress(visible=not as_json) as on_progress:
        timings = run_simulator_bench(on_progress, captured=trace or ())
    if as_json:
        print_json([timing.to_dict() for timing in timings])
    else:
        show(simulator_table(timings))


@bench.command()
def ablation(
    what: Annotated[
        str, typer.Option(help="Of block, regrow, interconnect, balancer, prefetch, scus; several with commas, or all.")
    ] = "all",
    network: Annotated[str, typer.Option(help="transformer-base or resnet50.")] = "transformer-base",
    examples: Annotated[int, typer.Option(min=0, help="Tokens or images; 0: a size that runs quickly.")] = 0,
    sparsity: Annotated[str, typer.Option(help="Shares of blocks to drop.")] = "0.5,0.75,0.9",
    seeds: Annotated[int, typer.Option(min=1, help="How often blocks and zeros are drawn.")] = 3,
    on: Annotated[
        str, typer.Option("--on", help="The fabric to vary: acf-512, acf-16384 or a .toml file.")
    ] = "acf-512",
    whole: Annotated[bool, typer.Option("--whole", help="All layers of the network, not a sample of them.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for records and plots; a later call goes on from them.")] = Path(
        "runs/ablation"
    ),
    as_json: Json = False,
) -> None:
    """Vary one part of the fabric and measure what it is worth; exit code 1 if a point failed."""
    from acf.bench.fabric.ablation_runs import AblationOptions, chosen_ablations, run_ablation
    from acf.report import report as write_report
    from acf.tables import ablation_table
    from acf.terminal import progress, show

    names = chosen_ablations([name.strip() for name in what.split(",")])
    options = AblationOptions(network, examples, tuple(numbers(sparsity, "sparsity")), seeds, on, whole)
    records: list[AblationRecord] = []
    with progress(visible=not as_json) as on_progress:
        for name in names:

            def on_part(point: str, share: float) -> None:
                on_progress(point, (len(records) + share) / len(names))

            records.append(run_ablation(name, options, out, on_part))
    page = write_report([], out / "ablations.html", ablations=records, title="Ablations of the fabric")
    if as_json:
        print_json([json.loads(record.to_json()) for record in records])
    else:
        for record in records:
            show(ablation_table(record))
        typer.echo(f"report: {page}")
    if any(record.failed for record in records):
        raise typer.Exit(1)


@bench.command()
def fabric(
    network: Annotated[str, typer.Option(help="resnet50 or transformer-base.")] = "transformer-base",
    examples: Annotated[int, typer.Option(help="Images or tokens of a step; 0: 32 images, 4096 tokens.")] = 0,
    sparsities: Annotated[str, typer.Option(help="Shares of blocks to drop.")] = "0,0.5,0.75,0.9",
    block: Annotated[int, typer.Option(help="Side of a block.")] = 16,
    on: Annotated[str, typer.Option("--on", help="acf-512 or acf-16384.")] = "acf-512",
    gpus: Annotated[bool, typer.Option(help="Also the GPU rooflines.")] = True,
    layers: Annotated[bool, typer.Option(help="Also every product on the fabric, and what it lost most to.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write all figures as JSON.")] = None,
    as_json: Json = False,
) -> None:
    """Play whole training steps on a fabric and on machines of equal peak: time, energy, utilisation, and why."""
    from acf.bench.columns import fabric_products_table, fabric_table
    from acf.bench.fabric.comparison import compare_steps
    from acf.bench.fabric.workloads import EXAMPLES, StepSpec
    from acf.terminal import progress, show

    shares = numbers(sparsities, "sparsities")
    steps = [StepSpec(network, examples or EXAMPLES.get(network, 1), share, block) for share in shares]
    with progress(visible=not as_json) as on_progress:
        played = compare_steps(steps, on, gpus, on_progress)
    if save is not None:
        write_whole(save, json.dumps([each.to_dict() for each in played], indent=1).encode())
    if as_json:
        print_json([each.to_dict() for each in played])
        return
    show(fabric_table(played, on))
    if layers:
        for each in played:
            if each.machine == on:
                show(fabric_products_table(each))
