"""`acf report`: one HTML page about saved results and ablations."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from acf.errors import ReportError

app = typer.Typer()


@app.command()
def report(
    results: Annotated[
        list[Path], typer.Argument(help="Files that --save of simulate or compare, bench ablation, or sweep wrote.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "ACF report",
) -> None:
    """Write one offline HTML page about saved results, ablations and sweeps."""
    from acf.metrics import AblationRecord
    from acf.report import report as write_report
    from acf.sim.result import Result
    from acf.sweep.page import sweep_section
    from acf.sweep.run import read_sweep

    sweeps = [sweep_section(read_sweep(path)) for path in results if path.suffix == ".sqlite"]
    saved = [values for path in results if path.suffix != ".sqlite" for values in _load_saved(path)]
    records = [AblationRecord.from_dict(values) for values in saved if "ablation" in values]
    loaded = [Result.from_dict(values) for values in saved if "ablation" not in values]
    typer.echo(f"report: {write_report(loaded, output, ablations=records, extra=sweeps, title=title)}")


def _load_saved(path: Path) -> list[dict[str, Any]]:
    """Results and records of ablations as plain values; one record may be the whole file."""
    remedy = "pass a file that --save, or `acf bench ablation`, wrote"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}); {remedy}") from error
    if isinstance(values, dict) and "ablation" in values:
        values = [values]
    if not isinstance(values, list) or not all(isinstance(item, dict) for item in values):
        raise ReportError(f"{path} holds no list of results; {remedy}")
    return values
