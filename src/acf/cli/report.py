"""`acf report`: one HTML page about records of any command, and sweeps."""

from pathlib import Path
from typing import Annotated

import typer

from acf.records import read_record, values_of

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

    content, records = Content(), []
    for path in files:
        with values_of(str(path)):
            if path.suffix == ".sqlite":
                content += Content(sections=(sweep_section(read_sweep(path)),))
            else:
                records.append(read_record(path))
                content += content_of(records[-1])
    origins = (origins_section(records),) if records else ()
    with working("draw the page", visible=True), values_of(", ".join(map(str, files))):
        page = write_report(
            content.results,
            out,
            training=content.training,
            ablations=content.ablations,
            extra=(*content.sections, *origins),
            title=title,
        )
    typer.echo(f"report: {page}")
