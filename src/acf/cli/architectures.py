"""`acf architectures`: the machines by name, and each as a TOML file to start from."""

from typing import Annotated

import typer

from acf.cli.options import Json, print_outcome

app = typer.Typer()


@app.command()
def architectures(
    show: Annotated[
        str, typer.Option(help="Print one machine as TOML: a name, a .toml file, a plug-in or module:name.")
    ] = "",
    as_json: Json = False,
) -> None:
    """List the machines that can be simulated, variants and plug-ins included, or print one as TOML.

    \b
    acf architectures
    acf architectures --show acf-512 > mine.toml && acf simulate step.safetensors --on mine.toml
    """
    from acf.columns import records
    from acf.sim.catalogue import catalogue
    from acf.sim.template import template
    from acf.tables import MACHINE, machine_table

    if show:
        typer.echo(template(show), nl=False)
        return
    rows = catalogue()
    print_outcome("architectures", records(MACHINE, rows), machine_table(rows), as_json)
