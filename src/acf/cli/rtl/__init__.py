"""The commands `acf rtl ...`. Amaranth, the simulator and torch are imported when a command needs them."""

import typer

from acf.cli.groups import AcfGroup
from acf.cli.rtl import components, fabric

app = typer.Typer(
    help="Components as hardware: Verilog, FPGA resources, area, power.", no_args_is_help=True, cls=AcfGroup
)
for group in (fabric, components):
    app.add_typer(group.app)  # without a name: the commands stand beside each other
