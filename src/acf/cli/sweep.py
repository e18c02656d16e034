"""`acf sweep`: many variants of a machine on traces, in parallel, with the Pareto front."""

from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acf.cli.options import Csv, Json, print_json
from acf.cli.specs import spec_command
from acf.errors import SweepError
from acf.options import option

if TYPE_CHECKING:
    from acf.sweep import SweepRecord
    from acf.sweep.file import SweepFile

app = typer.Typer()


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep runs, besides what it varies."""

    base: str = option("acf-512", "The machine whose fields are varied: a name, a .toml file, or module:name.")
    optuna: int = option(0, "Evaluate so many points that Optuna proposes, instead of the whole grid.", min=0)
    seed: int = option(0, "Of Optuna's sampler.")
    jobs: int = option(0, "Processes; 0: one per core.", min=0)
    ray: str = option("", "Run on the Ray cluster at this address; local: start one here.")
    name: str = option("", "The record is runs/NAME/sweep.sqlite; default: traces and base.")


@spec_command(app, options="acf.cli.sweep:SweepOptions")
def sweep(
    inputs: Annotated[list[Path], typer.Argument(help="Traces, or one .toml file that describes the sweep.")],
    options: SweepOptions,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the machine and its values: mesh_columns=4,8,16.")
    ] = None,
    csv: Csv = None,
    as_json: Json = False,
) -> None:
    """Simulate every variant of a machine, or those that Optuna proposes, and mark the Pareto front.

    A sweep that was stopped, or killed, goes on where it was; a variant that cannot be built fails alone.

    \b
    acf sweep step.safetensors --base acf-512 --set mesh_columns=4,8,16 --set link_bytes=16,32,64
    acf sweep sweep.toml --optuna 200 && acf report runs/sweep/sweep.sqlite
    """
    from acf.columns import csv_text
    from acf.files import write_whole
    from acf.sweep.columns import point_columns
    from acf.sweep.values import sweep_values

    path, record = _run(_described(inputs, options, settings or []), options, visible=not as_json)
    if csv is not None:
        write_whole(csv, csv_text(point_columns(record), record.rows).encode())
    if as_json:
        print_json("sweep", sweep_values(path, record))
    else:
        _print(path, record)


def _described(inputs: list[Path], options: SweepOptions, settings: list[str]) -> "SweepFile":
    """The sweep of a TOML file, or of the command line."""
    from acf.sweep.file import SweepFile, read_sweep_file
    from acf.sweep.sweep import parse_settings

    if any(path.suffix == ".toml" for path in inputs):
        if len(inputs) > 1 or settings or options.base != SweepOptions.base:
            raise SweepError("a .toml file describes the whole sweep; leave out other traces, --set and --base")
        file = read_sweep_file(inputs[0])
        return replace(
            file,
            optuna=options.optuna or file.optuna,
            name=options.name or file.name,
            seed=options.seed or file.seed,
        )
    return SweepFile(
        set=parse_settings(settings),
        name=options.name,
        traces=tuple(inputs),
        base=options.base,
        optuna=options.optuna,
        seed=options.seed,
    )


def _run(file: "SweepFile", options: SweepOptions, visible: bool) -> "tuple[Path, SweepRecord]":
    from acf.files import kept_inside
    from acf.sweep import Grid, OptunaSearch, RayCluster, Sweep, local_workers, run_sweep
    from acf.terminal import progress

    search = OptunaSearch(file.optuna, file.seed) if file.optuna else Grid()
    path = Path("runs") / file.label / "sweep.sqlite"
    planned = Sweep(file.label, file.axes, file.evaluation, path, search)
    held: Any = closing(RayCluster(options.ray)) if options.ray else nullcontext(local_workers(options.jobs))
    with held as workers, kept_inside(path.parent), progress(visible) as on_progress:
        return path, run_sweep(planned, workers, on_progress)


def _print(path: Path, record: "SweepRecord") -> None:
    from acf.tables import front_table, importance_table
    from acf.terminal import show

    show(front_table(record))
    show(importance_table(record))
    typer.echo(f"all points: {path}; acf report {path} draws them, --csv FILE writes them")
