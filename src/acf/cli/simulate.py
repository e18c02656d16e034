"""`acf simulate` and `acf compare`: a trace on one modelled machine, or on several."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import Csv, Json, print_outcome, save_json, split_list
from acf.errors import ArchitectureError

if TYPE_CHECKING:
    from acf.report.timeline import Timeline
    from acf.sim import Comparison
    from acf.sim.simulate import OnProgress

app = typer.Typer()

TraceFile = Annotated[Path, typer.Argument(help="A trace that `acf capture`, `acf demo` or Trace.save wrote.")]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write the results as JSON, for `acf report`.")]


@app.command()
def simulate(
    trace: TraceFile,
    on: Annotated[str, typer.Option("--on", help="An architecture's name, a .toml file, or module:name.")] = "acf-512",
    exact: Annotated[bool, typer.Option("--exact", help="Fabrics: step every queue in every cycle.")] = False,
    dump: Annotated[str, typer.Option(help="Only print a lowering of the trace: products, or program (fabrics).")] = "",
    out: OutFile = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline", help="Write trace events for Perfetto or chrome://tracing; fabrics: and a heat map, .svg."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a trace on one architecture and show every operation.

    \b
    acf simulate step.safetensors --on acf-512
    acf simulate step.safetensors --on acf-512 --timeline step.json
    """
    from acf.report.timeline import Timeline
    from acf.sim import simulate as play
    from acf.sim.exact import exact_engine
    from acf.tables import result_table
    from acf.terminal import progress
    from acf.trace import Trace

    loaded = Trace.load(trace)
    if dump:
        from acf.lowering.pipeline import dump as dump_lowering
        from acf.sim.registry import find_architecture

        typer.echo(dump_lowering(loaded, dump, find_architecture(on)[1]))
        return
    recorded = Timeline() if timeline is not None else None
    with progress(visible=not as_json) as on_progress:
        result = play(loaded, exact_engine(on) if exact else on, timeline=recorded, on_progress=on_progress)
    save_json("results", [result.to_dict()], out)
    print_outcome("results", [result.to_dict()], result_table(result), as_json)
    if recorded is not None and timeline is not None:
        _save_timeline(recorded, timeline)


def _save_timeline(recorded: "Timeline", path: Path) -> None:
    """Write the timeline, and a fabric's heat map beside it; stdout stays a table or JSON, so stderr says what."""
    written = recorded.save(path)
    typer.echo(f"timeline: {path} ({written.sentence}); open it at ui.perfetto.dev", err=True)
    if recorded.fabric is not None:
        typer.echo(f"heat map: {recorded.save_heat_map(path.with_suffix('.svg'))}", err=True)


@app.command()
def compare(
    traces: Annotated[list[Path], typer.Argument(help="Traces that `acf capture`, `acf demo` or Trace.save wrote.")],
    on: Annotated[
        list[str] | None, typer.Option("--on", help="Machines, with commas between. Default: all public ones.")
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="The machine that ratios refer to; with NAME@first, on the first trace for all traces.")
    ] = "tensorcore",
    out: OutFile = None,
    csv: Csv = None,
    as_json: Json = False,
) -> None:
    """Simulate traces on several machines: whole steps, energy and area, over a baseline and at equal size."""
    from acf.columns import csv_text, records
    from acf.files import write_whole
    from acf.report.columns import COMPARISON
    from acf.sim import architectures, find_architecture
    from acf.tables import comparison_table
    from acf.terminal import progress

    machines = split_list(on or architectures())
    base, of_first = _baseline(baseline)
    for name in {base, *machines}:
        find_architecture(name)  # a wrong name is refused before anything is simulated
    with progress(visible=not as_json) as on_progress:
        comparisons = list(_compared(traces, machines, (base, of_first), on_progress))
    if csv is not None:
        write_whole(csv, csv_text(COMPARISON, comparisons).encode())
    figures = records(COMPARISON, comparisons)
    values = [each.result.to_dict() | row for each, row in zip(comparisons, figures, strict=True)]
    save_json("comparison", values, out)
    print_outcome("comparison", values, comparison_table(comparisons), as_json)


def _baseline(text: str) -> tuple[str, bool]:
    """The machine, and whether its time on the first trace is the baseline of all traces."""
    name, at, where = text.rpartition("@")
    if not at:
        return text, False
    if where != "first":
        raise ArchitectureError(f"baseline {text!r} names no trace; write {name} or {name}@first")
    return name, True


def _compared(
    files: list[Path], machines: list[str], baseline: tuple[str, bool], on_progress: "OnProgress"
) -> "Iterator[Comparison]":
    """Every trace on every machine, the baseline first."""
    from acf.sim import Comparison
    from acf.sim import simulate as play
    from acf.trace import Trace

    (name, of_first), base = baseline, None
    order = list(dict.fromkeys((name, *machines)))
    for number, file in enumerate(files):
        trace = Trace.load(file)
        for place, machine in enumerate(order):
            done = number * len(order) + place

            def on_part(what: str, share: float, done: int = done, head: str = f"{machine}, {trace.label}") -> None:
                on_progress(f"{head}: {what}", (done + share) / (len(files) * len(order)))

            result = play(trace, machine, on_progress=on_part)
            base = result if place == 0 and not (of_first and base) else base
            yield Comparison(result, base or result)
