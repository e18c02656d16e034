"""`acf report`: one HTML page about saved results, training runs and ablations."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from acf.errors import AcfError, ReportError

app = typer.Typer()

KINDS = {"ops": "results", "ablation": "ablations", "losses": "training"}
"""Key that tells an entry of a file apart, and what it is to a report."""

WRAPPERS = ("results", "records", "rows")
"""Keys under which a file may hold lists of entries."""

REMEDY = "pass what --out or --json of acf simulate, compare, demo or bench ablation wrote"


@app.command()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(help="JSON that simulate, compare, demo or bench ablation wrote (--out or --json); a sweep."),
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "ACF report",
) -> None:
    """Write one offline HTML page about saved results, training runs, ablations and sweeps."""
    from acf.metrics import AblationRecord, TrainingRecord
    from acf.report import report as write_report
    from acf.sim.result import Result
    from acf.sweep.page import sweep_section
    from acf.sweep.run import read_sweep

    read = {"results": Result.from_dict, "ablations": AblationRecord.from_dict, "training": TrainingRecord.from_dict}
    found: dict[str, list[Any]] = {kind: [] for kind in read}
    sweeps = [sweep_section(read_sweep(path)) for path in files if path.suffix == ".sqlite"]
    for path in files:
        if path.suffix == ".sqlite":
            continue
        for entry in _entries(_load(path), path):
            kind = next(name for key, name in KINDS.items() if key in entry)
            try:
                found[kind].append(read[kind](entry))
            except AcfError as error:
                raise ReportError(f"{path}: {error}") from error
    records = {"training": found["training"], "ablations": found["ablations"]}
    typer.echo(f"report: {write_report(found['results'], out, **records, extra=sweeps, title=title)}")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path} cannot be read ({error.strerror}); {REMEDY}") from error
    except ValueError as error:
        raise ReportError(f"{path} is not JSON ({error}); {REMEDY}") from error


def _entries(values: Any, path: Path) -> Iterator[dict[str, Any]]:
    """The results, training runs and ablations of a file; anything else is refused by its keys."""
    if isinstance(values, list):
        for value in values:
            yield from _entries(value, path)
    elif isinstance(values, dict) and any(key in values for key in KINDS):
        yield values
    elif isinstance(values, dict) and any(isinstance(values.get(key), list) for key in WRAPPERS):
        for key in WRAPPERS:
            yield from _entries(values.get(key, []), path)
    else:
        held = (
            f"an entry with the keys {', '.join(list(values)[:4])}" if isinstance(values, dict) else repr(values)[:40]
        )
        raise ReportError(f"{path} holds {held}, which is no result, training run or ablation; {REMEDY}")
