"""`acf demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import Json, print_json
from acf.cli.specs import spec_command
from acf.run_folder import only_process_in

if TYPE_CHECKING:
    from acf.demo import DemoSpec

app = typer.Typer()


@spec_command(app, spec="acf.demo:DemoSpec")
def demo(
    spec: "DemoSpec",
    out: Annotated[Path, typer.Option(help="Folder for traces and the report.")] = Path("runs/demo"),
    as_json: Json = False,
) -> None:
    """Train a small CNN dense and block-sparse, capture a step of each, simulate it, write a report."""
    from acf.demo import run_demo
    from acf.tables import demo_table, training_table
    from acf.terminal import progress, show

    with only_process_in(out), progress(visible=not as_json) as on_progress:
        outcome = run_demo(spec, out, on_progress)
    if as_json:
        print_json(
            "demo",
            {
                "records": [record.to_dict() for record in outcome.records],
                "results": [result.to_dict() for result in outcome.results],
                "report": str(outcome.report_path),
            },
        )
        return
    show(training_table(outcome))
    show(demo_table(outcome))
    typer.echo(f"report: {outcome.report_path}")
