"""The commands `acf rtl ...`. Amaranth, the simulator and torch are imported when a command needs them."""

import typer

from acf.cli.rtl.components import area, costs, emit, power, synth, units
from acf.cli.rtl.fabric import describe, device, lockstep, sim

app = typer.Typer(help="Components as hardware: Verilog, FPGA resources, area, power.", no_args_is_help=True)

for command in (lockstep, sim, device, describe, units, emit, synth, area, costs, power):
    app.command()(command)
