"""`acf simulate` and `acf compare`: a trace on one modelled machine, or on several."""

from pathlib import Path
from typing import Annotated

import typer

from acf.cli.options import Json, print_outcome, save_json

app = typer.Typer()

TraceFile = Annotated[Path, typer.Argument(help="A trace that `acf capture`, `acf demo` or Trace.save wrote.")]
SaveFile = Annotated[Path | None, typer.Option("--save", help="Write the results as JSON, for `acf report`.")]


@app.command()
def simulate(
    trace: TraceFile,
    on: Annotated[str, typer.Option("--on", help="An architecture's name, or a .toml file.")] = "acf-512",
    exact: Annotated[bool, typer.Option("--exact", help="Fabrics: step every queue in every cycle.")] = False,
    dump: Annotated[str, typer.Option(help="Only print a lowering of the trace: products, or program (fabrics).")] = "",
    save: SaveFile = None,
    as_json: Json = False,
) -> None:
    """Simulate a trace on one architecture and show every operation."""
    from acf.sim import simulate as play
    from acf.sim.exact import exact_engine
    from acf.tables import result_table
    from acf.trace import Trace

    loaded = Trace.load(trace)
    if dump:
        from acf.lowering.pipeline import dump as dump_lowering
        from acf.sim.registry import find_architecture

        typer.echo(dump_lowering(loaded, dump, find_architecture(on)[1]))
        return
    result = play(loaded, exact_engine(on) if exact else on)
    save_json([result.to_dict()], save)
    print_outcome(result.to_dict(), result_table(result), as_json)


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
    """Simulate a trace on several architectures and show their speedups over a baseline."""
    from acf.columns import records
    from acf.report.columns import summary_columns
    from acf.sim import architectures
    from acf.sim import simulate as play
    from acf.tables import comparison_rows, comparison_table
    from acf.trace import Trace

    loaded = Trace.load(trace)
    names = list(dict.fromkeys([baseline, *(on or architectures())]))
    results = [play(loaded, name) for name in names]
    save_json([result.to_dict() for result in results], save)
    figures = records(summary_columns([]), comparison_rows(results))
    values = [result.to_dict() | each for result, each in zip(results, figures, strict=True)]
    print_outcome(values, comparison_table(results), as_json)
