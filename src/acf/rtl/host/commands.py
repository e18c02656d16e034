"""The command that runs the fabric as a device: `acf rtl device`."""

import json
import time
from typing import Annotated

import typer

from acf.rtl.lockstep.commands import Backend, Config, Json, load_shape


def device(
    config: Config = None,
    tokens: Annotated[int, typer.Option(min=1, help="Rows of the left operand.")] = 64,
    inputs: Annotated[int, typer.Option(min=1, help="Length of the reduction.")] = 64,
    outputs: Annotated[int, typer.Option(min=1, help="Columns of the right operand.")] = 64,
    zeros: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of zeros in the left operand.")] = 0.5,
    sparsity: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of absent blocks in the right.")] = 0.75,
    programs: Annotated[int, typer.Option(min=0, help="Run so many random products instead of the layer.")] = 0,
    latency: Annotated[int, typer.Option(min=0, max=65535, help="Cycles of memory until the first beat.")] = 50,
    command_depth: Annotated[int, typer.Option(min=2, help="Commands that a controller holds at a time.")] = 64,
    backend: Backend = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the operands.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a block-sparse layer on the device, from memory to memory over AXI4; exit code 1 if its output is wrong."""
    shape = load_shape(config)
    from acf.rtl.axi.spec import AxiSpec
    from acf.rtl.fabric.device import DEVICE_FLITS
    from acf.rtl.fabric.sizes import FabricSizes
    from acf.rtl.host.simulation import DeviceSimulation, memory_beats, total_of
    from acf.rtl.lockstep.run import layer_product, random_product

    layer = layer_product(tokens, inputs, outputs, shape.tile, zeros, sparsity, seed)
    products = [random_product(seed + number, shape.tile) for number in range(programs)] or [layer]
    sizes = FabricSizes(shape, command_depth, DEVICE_FLITS)
    axi = AxiSpec(data_bits=min(256, sizes.flit_bits))
    begin = time.perf_counter()
    beats = max(memory_beats(sizes, axi, product) for product in products)
    built = DeviceSimulation.of(sizes, axi, beats, latency, backend)
    ready = time.perf_counter()
    run = total_of([built.run(product) for product in products])
    seconds = {"build_seconds": round(ready - begin, 2), "seconds": round(time.perf_counter() - ready, 2)}
    if as_json:
        typer.echo(json.dumps({"programs": len(products)} | vars(run) | seconds))
    else:
        typer.echo(
            f"{run.cycles} cycles on {shape.scus} SCUs, {run.commands} commands, {run.read_bytes} bytes read, "
            f"{run.written_bytes} written, results held {run.held_cycles} cycles"
        )
        typer.echo(f"built or found in {seconds['build_seconds']} s, run in {seconds['seconds']} s")
        typer.echo("every bit is the reference's" if run.is_equal else "the output differs from the reference")
    if not run.is_equal:
        raise typer.Exit(1)
