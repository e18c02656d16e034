"""`acf reproduce`: published figures, computed again."""

from typing import Annotated

import typer

from acf.cli.options import Json, print_outcome

app = typer.Typer()


@app.command()
def reproduce(
    only: Annotated[str, typer.Option(help="Ids of rows, separated by commas: T5,T6. Default: all.")] = "",
    as_json: Json = False,
) -> None:
    """Compute the published figures row by row; exit code 1 if one that can be reproduced is out of tolerance."""
    from acf.reproduce import ROWS
    from acf.reproduce import reproduce as compute_rows
    from acf.tables import reproduce_table
    from acf.terminal import progress

    names = [name.strip() for name in only.split(",") if name.strip()]
    rows = {}
    with progress(visible=not as_json) as on_progress:
        for name, row in compute_rows(names):
            rows[name] = row
            on_progress(name, len(rows) / (len(set(names)) or len(ROWS)))
    print_outcome([{"id": name} | row.to_dict() for name, row in rows.items()], reproduce_table(rows), as_json)
    if not all(row.within for row in rows.values()):
        raise typer.Exit(1)
