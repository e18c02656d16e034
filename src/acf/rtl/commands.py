"""The commands `acf rtl ...`: thin, and quick to import."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from acf.errors import RtlError
from acf.files import write_whole
from acf.rtl.host.commands import device
from acf.rtl.lockstep.commands import describe, load_shape, lockstep, sim
from acf.rtl.requirements import require

app = typer.Typer(help="Components as hardware: Verilog, FPGA resources, area, power.", no_args_is_help=True)

UnitName = Annotated[str, typer.Argument(help="A component's name; `acf rtl units` lists them.")]
UnitOrConfig = Annotated[
    str | None, typer.Argument(help="A component's name; `acf rtl units` lists them. Or --config.", show_default=False)
]
Config = Annotated[Path | None, typer.Option(help="A fabric by name or TOML file, for example acf-512.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]


for command in (lockstep, sim, device, describe):
    app.command()(command)


@app.command()
def units(as_json: Json = False) -> None:
    """List the components by name."""
    require("amaranth")
    from acf.rtl.registry import UNITS
    from acf.rtl.tables import units_table
    from acf.terminal import show

    if as_json:
        _print_json({name: unit.about for name, unit in UNITS.items()})
    else:
        show(units_table(UNITS))


@app.command()
def emit(
    unit: UnitOrConfig = None,
    config: Config = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The Verilog file to write.")] = Path("acf.v"),
    lint: Annotated[bool, typer.Option(help="Let Verilator check it; exit code 1 if it finds something.")] = False,
    as_json: Json = False,
) -> None:
    """Write a component, or the whole fabric of a configuration, as Verilog-2005: the same text on every run."""
    build, name = _builder_of(unit, config)
    from acf.rtl.flow.lint import lint as check
    from acf.rtl.flow.verilator import find_verilator
    from acf.rtl.flow.verilog import emit_verilog

    verilator = find_verilator() if lint else None
    text = emit_verilog(build(), name)
    write_whole(output, text.encode())
    found = check(text, verilator) if verilator else []
    modules = text.count("\nmodule ")
    if as_json:
        facts = {"file": str(output), "top": name, "modules": modules}
        _print_json(facts | {"warnings": [vars(each) for each in found]})
    else:
        typer.echo(f"{output}: {modules} modules, top {name}")
        for each in found:
            typer.echo(f"{each.kind}: {each.text}")
    if found:
        raise typer.Exit(1)


@app.command()
def synth(
    unit: UnitOrConfig = None,
    config: Config = None,
    target: Annotated[str, typer.Option(help="The FPGA family: xcup (UltraScale+).")] = "xcup",
    as_json: Json = False,
) -> None:
    """Synthesise a component or a whole fabric: LUTs, flip-flops, DSPs, memories and logic depth of every module.

    Says whether all of it fits a VU9P. Every different module is synthesised once, and kept in the cache.
    """
    build, name = _builder_of(unit, config)
    from acf.rtl.synthesis import check_family, synthesise
    from acf.rtl.tables import synthesis_table

    check_family(target)
    _show(synthesise(build(), name, target), synthesis_table, as_json)


@app.command()
def area(
    liberty: Annotated[Path, typer.Option(help="The liberty file of a cell library.")],
    unit: UnitOrConfig = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Area of a component or a whole fabric in gate equivalents, with the cells of a liberty file."""
    build, name = _builder_of(unit, config, products=False)
    from acf.rtl.area import measure_area
    from acf.rtl.liberty import Liberty
    from acf.rtl.tables import area_table

    cells = Liberty.read(liberty)
    _show(measure_area(build(), name, cells), area_table, as_json)


@app.command()
def costs(
    liberty: Annotated[Path, typer.Option(help="The liberty file of a cell library; areas in square micrometres.")],
    node: Annotated[int, typer.Option(min=1, help="The library's technology node in nm, for example 180.")],
    config: Annotated[Path, typer.Option(help="A fabric by name or TOML file, for example acf-512.")],
    as_json: Json = False,
) -> None:
    """Area and energy per operation as synthesised, beside what the simulator charges."""
    shape = load_shape(config)
    require("pyosys")
    from acf.rtl.costs import compare_costs
    from acf.rtl.flow.verilator import find_verilator
    from acf.rtl.liberty import Liberty
    from acf.rtl.tables import cost_table

    cells = Liberty.read(liberty)
    find_verilator()
    _show(compare_costs(shape, cells, node), cost_table, as_json)


@app.command()
def power(
    unit: UnitOrConfig = None,
    config: Config = None,
    liberty: Annotated[Path | None, typer.Option(help="The liberty file; without it gate inputs are counted.")] = None,
    cycles: Annotated[int, typer.Option(min=1, help="Cycles to run a component.")] = 2000,
    zeros: Annotated[float, typer.Option(min=0.0, max=1.0, help="mac, fabric: share of zeros in one operand.")] = 0.5,
    sparsity: Annotated[float, typer.Option(min=0.0, max=1.0, help="fabric: share of absent blocks.")] = 0.5,
    size: Annotated[int, typer.Option(min=1, help="fabric: rows, reduction and columns of the product.")] = 32,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Relative power of a component, or of a small fabric that computes a product, from the toggles of its gates."""
    build, name = _builder_of(unit, config)
    from acf.rtl.flow.verilator import find_verilator
    from acf.rtl.liberty import Liberty
    from acf.rtl.tables import power_table

    cells = None if liberty is None else Liberty.read(liberty)
    find_verilator()
    if config is not None:
        from acf.rtl.lockstep.power import measure_fabric_power
        from acf.rtl.lockstep.run import layer_product

        shape = load_shape(config)
        product = layer_product(size, size, size, shape.tile, zeros, sparsity, seed)
        _show(measure_fabric_power(shape, product, cells), power_table, as_json)
        return
    from acf.rtl.power import measure_power
    from acf.rtl.registry import unit_named

    component = build()
    inputs = unit_named(str(unit)).stimulus(component, cycles, zeros, seed)
    _show(measure_power(component, name, inputs, cycles, cells), power_table, as_json)


def _builder_of(unit: str | None, config: Path | None, products: bool = True) -> tuple[Callable[[], Any], str]:
    """What builds the component, and its top module's name: a unit by name or the fabric of a file.

    ``products`` as in `FabricSizes`: whether the fabric's adders are those for an FPGA.
    """
    if (unit is None) == (config is None):
        raise RtlError("name a unit or a fabric with --config, one of the two; `acf rtl units` lists the units")
    if unit is not None:
        build = _builder(unit)
        from acf.rtl.registry import module_name

        return build, module_name(unit)
    require("amaranth")
    require("pyosys")
    from acf.rtl.fabric.device import DEVICE_FLITS, Device
    from acf.rtl.fabric.sizes import FabricSizes

    sizes = FabricSizes(load_shape(config), memory_flits=DEVICE_FLITS, products=products)
    return lambda: Device(sizes), "acf_fabric"


def _builder(unit: str) -> Callable[[], Any]:
    """What builds a component; called once everything else is known to be right, since each must be used."""
    require("amaranth")
    require("pyosys")
    from acf.rtl.registry import unit_named

    return unit_named(unit).build


def _show(report: Any, table: Any, as_json: bool) -> None:
    from acf.terminal import show

    if as_json:
        _print_json(report.to_dict())
    else:
        show(table(report))


def _print_json(values: Any) -> None:
    typer.echo(json.dumps(values, indent=2))
