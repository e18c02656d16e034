"""Commands that run or describe a whole fabric: `acf rtl lockstep`, `sim`, `device` and `describe`."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acf.cli.options import Json, print_json
from acf.cli.specs import spec_command
from acf.extras import require
from acf.terminal import progress, working

if TYPE_CHECKING:
    from acf.rtl.device.step.control import StepControl
    from acf.rtl.device.step.layer import StepSizes, StepState
    from acf.rtl.device.step.plan import StepPlan
    from acf.rtl.verify.workloads import DeviceMemory, Layer, LayerSizes

app = typer.Typer()

FabricName = Annotated[
    str | None,
    typer.Option("--on", help="A fabric's name, for example acf-512, or TOML file; else a small fabric."),
]
Backend = Annotated[str, typer.Option(help="verilator, pysim, or auto: the first that works.")]
LAYER = "acf.rtl.verify.workloads:Layer"
LAYER_SIZES = "acf.rtl.verify.workloads:LayerSizes"
MEMORY = "acf.rtl.verify.workloads:DeviceMemory"
STEP_SIZES = "acf.rtl.device.step.layer:StepSizes"
STEP_CONTROL = "acf.rtl.device.step.control:StepControl"


@app.command()
def lockstep(
    programs: Annotated[int, typer.Option(min=1, help="Random programs to run.")] = 20,
    config: FabricName = None,
    backend: Backend = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first program.")] = 0,
    tiles: Annotated[int, typer.Option(min=1, help="Tiles per side of a product, at most.")] = 4,
    as_json: Json = False,
) -> None:
    """Run random programs on the model and on the gates; exit code 1 with the first difference, if there is one."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
    from acf.rtl.verify.lockstep.products import random_product, sizes_for
    from acf.rtl.verify.lockstep.run import run_lockstep

    shape = find_shape(config)
    products = [random_product(seed + number, shape.tile, tiles) for number in range(programs)]
    with working("build the gates", visible=not as_json):
        fabric = FabricSimulation.of(sizes_for(shape, products), backend, "-O0")
    cycles = 0
    with progress(visible=not as_json) as on_progress:
        for number, product in enumerate(products):
            on_progress(f"program {seed + number}", number / programs)
            both = run_lockstep(product, fabric)
            cycles += both.fabric.cycles
            if both.divergence is not None:
                typer.echo(f"program {seed + number}: {both.divergence}", err=True)
                raise typer.Exit(1)
    facts = {"programs": programs, "cycles": cycles, "scus": shape.scus, "backend": fabric.simulation.backend}
    text = (
        f"{programs} programs, {cycles} cycles on {shape.scus} SCUs: model and {facts['backend']} agree on every event"
    )
    if as_json:
        print_json("rtl-lockstep", facts)
    else:
        typer.echo(f"{text}, counter and bit")


@spec_command(app, layer=LAYER)
def sim(
    layer: "Layer",
    config: FabricName = None,
    backend: Backend = "auto",
    timing: Annotated[int, typer.Option(min=0, help="Draw the timing of so many cycles.")] = 0,
    as_json: Json = False,
) -> None:
    """Run one block-sparse layer on the gates: cycles, how the SCUs spent them, and whether the model agrees."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.verify.lockstep.fabric_simulation import FabricSimulation
    from acf.rtl.verify.lockstep.products import Product, sizes_for
    from acf.rtl.verify.lockstep.run import run_lockstep
    from acf.rtl.verify.lockstep.timing_diagram import timing_diagram

    shape = find_shape(config)
    product = Product.of_layer(layer, shape.tile)
    begin = time.perf_counter()
    with working("build the gates and run the layer", visible=not as_json):
        fabric = FabricSimulation.of(sizes_for(shape, [product]), backend, "-O0")
        built = time.perf_counter()
        both = run_lockstep(product, fabric)
    seconds = {"build_seconds": round(built - begin, 2), "seconds": round(time.perf_counter() - built, 2)}
    by_reason = both.fabric.cycles_by_reason
    divergence = None if both.divergence is None else str(both.divergence)
    if as_json:
        facts: dict[str, Any] = {"scus": shape.scus, "cycles": both.fabric.cycles, "model_cycles": both.model.cycles}
        facts |= {"scu_cycles": by_reason, "backend": fabric.simulation.backend}
        print_json("rtl-sim", facts | seconds | {"divergence": divergence})
    else:
        typer.echo(
            f"{both.fabric.cycles} cycles on {shape.scus} SCUs ({fabric.simulation.backend}, built or found in "
            f"{seconds['build_seconds']} s, both sides run in {seconds['seconds']} s)"
        )
        typer.echo(", ".join(f"{reason} {count}" for reason, count in by_reason.items()) + " SCU cycles")
        typer.echo(divergence or "the model agrees on every event, counter and bit")
        if timing:
            typer.echo(timing_diagram(both.fabric, 0, timing))
    if divergence:
        raise typer.Exit(1)


@spec_command(app, layer=LAYER, memory=MEMORY)
def device(
    layer: "Layer",
    memory: "DeviceMemory",
    config: FabricName = None,
    programs: Annotated[int, typer.Option(min=0, help="Run so many random products instead of the layer.")] = 0,
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Run a block-sparse layer on the device, from memory to memory over AXI4; exit code 1 if its output is wrong."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.device.device import device_sizes
    from acf.rtl.device.host.simulation import DeviceSimulation, total_of
    from acf.rtl.verify.lockstep.products import Product, random_product

    shape = find_shape(config)
    products = [random_product(layer.seed + number, shape.tile) for number in range(programs)]
    products = products or [Product.of_layer(layer, shape.tile)]
    begin = time.perf_counter()
    depths = device_sizes(shape, memory.command_depth)
    with working("build the device and run the layer", visible=not as_json):
        built = DeviceSimulation.for_products(depths, products, memory.latency, backend, memory.masters)
        ready = time.perf_counter()
        run = total_of([built.run(product) for product in products])
    seconds = {"build_seconds": round(ready - begin, 2), "seconds": round(time.perf_counter() - ready, 2)}
    if as_json:
        print_json("rtl-device", {"programs": len(products)} | asdict(run) | seconds)
    else:
        typer.echo(
            f"{run.cycles} cycles on {shape.scus} SCUs, {run.commands} commands, {run.read_bytes} bytes read, "
            f"{run.written_bytes} written, results held {run.held_cycles} cycles"
        )
        typer.echo(str(run.profile))
        typer.echo(f"built or found in {seconds['build_seconds']} s, run in {seconds['seconds']} s")
        typer.echo("every bit is the reference's" if run.is_equal else "the output differs from the reference")
    if not run.is_equal:
        raise typer.Exit(1)


@spec_command(app, sizes=LAYER_SIZES, memory=MEMORY)
def layers(
    sizes: "LayerSizes",
    memory: "DeviceMemory",
    config: FabricName = None,
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Run three layers on the device from memory to memory, beside the model; exit code 1 if an output is wrong."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.device.device import device_sizes
    from acf.rtl.device.host.layer_runs import layer_table, run_layers
    from acf.rtl.device.host.simulation import DeviceSimulation
    from acf.rtl.verify.layers import LAYERS

    shape = find_shape(config)
    products = {name: make(sizes, shape.tile) for name, make in LAYERS.items()}
    depths = device_sizes(shape, memory.command_depth)
    with working("build the device and run the layers", visible=not as_json):
        device = DeviceSimulation.for_products(depths, list(products.values()), memory.latency, backend, memory.masters)
        runs = list(run_layers(device, products))
    if as_json:
        facts = {"config": config, "memory": asdict(memory), "sizes": asdict(sizes)}
        print_json("rtl-layers", facts | {"layers": [run.record() for run in runs]})
    else:
        typer.echo(layer_table(runs))
    if not all(each.run.is_equal for each in runs):
        typer.echo("an output differs from the reference", err=True)
        raise typer.Exit(1)


@spec_command(app, sizes=STEP_SIZES, memory=MEMORY, control=STEP_CONTROL)
def step(
    sizes: "StepSizes",
    memory: "DeviceMemory",
    control: "StepControl",
    config: FabricName = None,
    backend: Backend = "auto",
    as_json: Json = False,
) -> None:
    """Run a whole training step of a layer on the device: products, norm, activation, loss, update; exit 1 if wrong."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.axi.spec import AxiSpec
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.device.device import device_sizes
    from acf.rtl.device.step.layer import random_step
    from acf.rtl.device.step.model import model_step
    from acf.rtl.device.step.moving import MovingLayer, plan_moving_step
    from acf.rtl.device.step.plan import plan_step
    from acf.rtl.device.step.reference import reference_step
    from acf.rtl.device.step.run import device_for_step, run_step, step_text

    shape = find_shape(config)
    depths = device_sizes(shape, memory.command_depth)
    axi = AxiSpec(data_bits=min(256, depths.flit_bits), masters=memory.masters)
    state = random_step(sizes, shape.tile)
    if control.moves:
        plan = plan_moving_step(state, depths, axi, control.moves, moving=MovingLayer(sizes, control.dataflow))
        _moving_steps(plan, state, sizes, memory, backend, as_json)
        return
    plan = plan_step(state, depths, axi, control.walks, control.dataflow, sizes)
    with working("build the device and run the step", visible=not as_json):
        built = device_for_step(plan, axi, memory.latency, backend)
        run = run_step(built, plan, state, sizes)
    model = model_step(plan, built, state, run.result)
    differences = run.result.differences(reference_step(state, sizes, plan))
    if as_json:
        facts = {"config": config, "sizes": asdict(sizes), "memory": asdict(memory), "model": asdict(model)}
        print_json("rtl-step", facts | run.record(plan) | {"differences": differences})
    else:
        typer.echo(step_text(run, plan))
        typer.echo(
            f"model: products {', '.join(map(str, model.product_cycles.values()))}, the same order "
            f"{model.memory_cycles}, activations on chip and passes fused {model.cycles}"
        )
        typer.echo("every bit is the reference's" if not differences else f"differs in {', '.join(differences)}")
    if differences:
        raise typer.Exit(1)


def _moving_steps(
    plan: "StepPlan", state: "StepState", sizes: "StepSizes", memory: "DeviceMemory", backend: str, as_json: bool
) -> None:
    """Two steps; the second walks the index that the device has written at the end of the first."""
    from acf.rtl.design.axi.spec import AxiSpec
    from acf.rtl.device.step.moving import run_moving_steps
    from acf.rtl.device.step.run import device_for_step, step_text

    axi = AxiSpec(data_bits=min(256, plan.sizes.flit_bits), masters=memory.masters)
    with working("build the device and run two steps", visible=not as_json):
        runs = list(run_moving_steps(device_for_step(plan, axi, memory.latency, backend), plan, state, sizes))
    if as_json:
        print_json("rtl-moving-steps", {"steps": [each.record() for each in runs]})
    for each in [] if as_json else runs:
        typer.echo(step_text(each.run, each.plan))
        for slot, block in each.record()["moved"].items():
            typer.echo(f"  slot {slot}: block {each.plan.blocks[slot]} leaves, {block} grows")
        right = "every bit of results, index and descriptors is the reference's"
        typer.echo(f"differs in {', '.join(each.differences)}" if each.differences else right)
    if any(each.differences for each in runs):
        raise typer.Exit(1)


@app.command()
def describe(config: FabricName = None) -> None:
    """Print drawing, command encoding and ports of a fabric as Markdown."""
    require("amaranth", needed_by="the RTL flow")
    from acf.rtl.design.fabric.shapes import find_shape
    from acf.rtl.device.describe import describe as text_of
    from acf.rtl.device.device import device_sizes

    typer.echo(text_of(device_sizes(find_shape(config))))
