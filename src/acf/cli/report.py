"""`acf report`: one HTML page about records of any command, and sweeps."""

from pathlib import Path
from typing import Annotated

import typer

from acf.records import read_record

app = typer.Typer()


@app.command()
def report(
    files: Annotated[
        list[Path], typer.Argument(help="Records of any command (--json or --out), and sweeps (sweep.sqlite).")
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "ACF report",
) -> None:
    """Write one offline HTML page about the records of any command: results, training runs, sweeps and the rest."""
    from acf.pages import Content, content_of, origins_section
    from acf.report import report as write_report
    from acf.sweep.page import sweep_section
    from acf.sweep.run import read_sweep
    from acf.terminal import working

    sweeps = [sweep_section(read_sweep(path)) for path in files if path.suffix == ".sqlite"]
    records = [read_record(path) for path in files if path.suffix != ".sqlite"]
    content = sum(map(content_of, records), Content(sections=tuple(sweeps)))
    origins = (origins_section(records),) if records else ()
    with working("draw the page", visible=True):
        page = write_report(
            content.results,
            out,
            training=content.training,
            ablations=content.ablations,
            extra=(*content.sections, *origins),
            title=title,
        )
    typer.echo(f"report: {page}")
