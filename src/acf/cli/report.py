"""`acf report`: one HTML page about records of any command, and sweeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from acf.errors import AcfError, ReportError
from acf.records import read_record

app = typer.Typer()

OF_THE_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading and drawing raise where a record holds values of other kinds than its command writes."""


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
        with _as_report_errors(str(path)):
            if path.suffix == ".sqlite":
                content += Content(sections=(sweep_section(read_sweep(path)),))
            else:
                records.append(read_record(path))
                content += content_of(records[-1])
    origins = (origins_section(records),) if records else ()
    with working("draw the page", visible=True), _as_report_errors(", ".join(map(str, files))):
        page = write_report(
            content.results,
            out,
            training=content.training,
            ablations=content.ablations,
            extra=(*content.sections, *origins),
            title=title,
        )
    typer.echo(f"report: {page}")


@contextmanager
def _as_report_errors(source: str) -> Iterator[None]:
    try:
        yield
    except AcfError:
        raise
    except OF_THE_VALUES as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReportError(
            f"{source} has values that no command of acf writes ({reason}); write it again with --json or --out"
        ) from error
