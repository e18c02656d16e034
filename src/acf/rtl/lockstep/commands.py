"""The commands that run the whole fabric: `acf rtl lockstep` and `acf rtl sim`."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from acf.rtl.requirements import require

Config = Annotated[
    Path | None, typer.Option(help="A fabric by name or TOML file, for example acf-512; else a small fabric.")
]
Backend = Annotated[str, typer.Option(help="verilator, pysim, or auto: the first that works.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

SMALL = {
    "mesh_rows": 2,
    "mesh_columns": 2,
    "scus_per_cluster": 1,
    "tile": 8,
    "link_bytes": 16,
    "queue_packets": 3,
    "parallel_slots": 6,
    "accumulator_tiles": 4,
    "prefetch_packets": 4,
}
"""4 SCUs with shallow queues, so that every kind of stall occurs in short programs."""


def lockstep(
    programs: Annotated[int, typer.Option(min=1, help="Random programs to run.")] = 20,
    config: Config = None,
    backend: Backend = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first program.")] = 0,
    pieces: Annotated[int, typer.Option(min=1, help="Pieces per side of a product, at most.")] = 4,
    as_json: Json = False,
) -> None:
    """Run random programs on the model and on the gates; exit code 1 with the first difference, if there is one."""
    shape = load_shape(config)
    from acf.rtl.lockstep.fabric import FabricSimulation
    from acf.rtl.lockstep.run import random_product, run_lockstep, sizes_for

    products = [random_product(seed + number, shape.tile, pieces) for number in range(programs)]
    fabric = FabricSimulation.of(sizes_for(shape, products), backend, "-O0")
    cycles = 0
    for number, product in enumerate(products):
        both = run_lockstep(product, fabric)
        cycles += both.fabric.cycles
        if both.divergence is not None:
            typer.echo(f"program {seed + number}: {both.divergence}", err=True)
            raise typer.Exit(1)
    facts = {"programs": programs, "cycles": cycles, "units": shape.scus, "backend": fabric.simulation.backend}
    text = (
        f"{programs} programs, {cycles} cycles on {shape.scus} SCUs: model and {facts['backend']} agree on every event"
    )
    typer.echo(json.dumps(facts) if as_json else f"{text}, counter and bit")


def sim(
    config: Config = None,
    tokens: Annotated[int, typer.Option(min=1, help="Rows of the left operand.")] = 64,
    inputs: Annotated[int, typer.Option(min=1, help="Length of the reduction.")] = 64,
    outputs: Annotated[int, typer.Option(min=1, help="Columns of the right operand.")] = 64,
    zeros: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of zeros in the left operand.")] = 0.5,
    sparsity: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of absent blocks in the right.")] = 0.75,
    backend: Backend = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the operands.")] = 0,
    timing: Annotated[int, typer.Option(min=0, help="Draw the timing of so many cycles.")] = 0,
    as_json: Json = False,
) -> None:
    """Run one block-sparse layer on the gates: cycles, what units did with them, and whether the model agrees."""
    shape = load_shape(config)
    from acf.rtl.lockstep.fabric import FabricSimulation
    from acf.rtl.lockstep.run import layer_product, run_lockstep, sizes_for
    from acf.sim.fabric.traffic import REASONS

    product = layer_product(tokens, inputs, outputs, shape.tile, zeros, sparsity, seed)
    begin = time.perf_counter()
    fabric = FabricSimulation.of(sizes_for(shape, [product]), backend, "-O0")
    built = time.perf_counter()
    both = run_lockstep(product, fabric)
    by_reason = dict(zip(REASONS, both.fabric.unit_cycles.sum(axis=0).tolist(), strict=True))
    facts: dict[str, Any] = {
        "units": shape.scus,
        "cycles": both.fabric.cycles,
        "model_cycles": both.model.cycles,
        "unit_cycles": by_reason,
        "backend": fabric.simulation.backend,
        "build_seconds": round(built - begin, 2),
        "seconds": round(time.perf_counter() - built, 2),
        "divergence": None if both.divergence is None else str(both.divergence),
    }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        typer.echo(
            f"{facts['cycles']} cycles on {shape.scus} SCUs ({facts['backend']}, built or found in "
            f"{facts['build_seconds']} s, both sides run in {facts['seconds']} s)"
        )
        typer.echo(", ".join(f"{reason} {count}" for reason, count in by_reason.items()) + " unit cycles")
        typer.echo(
            "the model agrees on every event, counter and bit" if both.divergence is None else str(both.divergence)
        )
        if timing:
            from acf.rtl.lockstep.timing import timing_diagram

            typer.echo(timing_diagram(both.fabric, 0, timing))
    if both.divergence is not None:
        raise typer.Exit(1)


def describe(config: Config = None) -> None:
    """Print drawing, command encoding and ports of a fabric as Markdown."""
    shape = load_shape(config)
    from acf.rtl.fabric.describe import describe as text_of
    from acf.rtl.fabric.device import DEVICE_FLITS
    from acf.rtl.fabric.sizes import FabricSizes

    typer.echo(text_of(FabricSizes(shape, memory_flits=DEVICE_FLITS)))


def load_shape(config: Path | None) -> Any:
    """The shape of a named fabric or a TOML file, or the small one."""
    require("amaranth")
    from acf.errors import RtlError
    from acf.lowering import FabricShape
    from acf.sim.fabric import AdaptiveFabric
    from acf.sim.registry import find_architecture, spec_of_kind

    if config is None:
        return spec_of_kind(AdaptiveFabric, "acf-512", **SMALL)
    _, spec = find_architecture(config)
    if not isinstance(spec, FabricShape):
        raise RtlError(f"{config} is no fabric; name one of kind fabric")
    return spec
