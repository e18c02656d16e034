"""`acf reproduce`: published figures, computed again."""

from pathlib import Path
from typing import Annotated

import typer

from acf.cli.options import Json, print_outcome, save_json, split_list

app = typer.Typer()


@app.command()
def reproduce(
    only: Annotated[str, typer.Option(help="Ids of rows, separated by commas: T5,T6. Default: all.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write all rows as a JSON record.")] = None,
    as_json: Json = False,
) -> None:
    """Compute the published figures row by row; exit code 1 if one misses its tolerance and is not known to."""
    from acf.reproduce import ROWS
    from acf.reproduce import reproduce as compute_rows
    from acf.tables import reproduce_table
    from acf.terminal import progress

    names = split_list([only])
    rows = {}
    with progress(visible=not as_json) as on_progress:
        for name, row in compute_rows(names):
            rows[name] = row
            on_progress(name, len(rows) / (len(set(names)) or len(ROWS)))
    listed = [{"id": name} | row.to_dict() for name, row in rows.items()]
    save_json("reproduce", {"rows": listed}, out)
    print_outcome("reproduce", {"rows": listed}, reproduce_table(rows), as_json)
    if not all(row.accepted for row in rows.values()):
        raise typer.Exit(1)
