"""`acf watch`: a training run as it goes on, in the terminal or on a page."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acf.cli.options import Json, print_json
from acf.errors import FileError

if TYPE_CHECKING:
    from acf.metrics.run_history import RunReader

app = typer.Typer()

LONGEST_SECONDS = 86_400.0
"""Between two looks at a run."""


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="The folder that the run gave to acf.RunLog.")],
    page: Annotated[bool, typer.Option("--page", help="Serve a page on 127.0.0.1 instead, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page; 0: any that is free.")] = 0,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the run.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Show a training run while it trains, or after it has finished or crashed: loss, pace, energy, masks.

    \b
    acf watch runs/mine
    acf watch runs/mine --page --port 8000
    acf watch runs/mine --json
    """
    from acf.metrics.run_history import RunReader

    if not 0 < every <= LONGEST_SECONDS:
        raise FileError(f"--every {every:g} is not above 0 and at most {LONGEST_SECONDS:g}; give seconds such as 1")
    reader = RunReader(folder)
    if as_json:
        print_json("run", reader.update().to_dict())
    elif page:
        _serve(reader, port)
    else:
        from acf.report.watch.terminal import watch_in_terminal

        watch_in_terminal(reader, every)


def _serve(reader: "RunReader", port: int) -> None:
    from acf.report.watch.page import page_server

    with page_server(reader, port) as server:
        typer.echo(f"http://127.0.0.1:{server.server_port}/ shows {reader.history.name}; Ctrl-C ends the page")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
