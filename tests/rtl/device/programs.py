"""The devices that tests build, and products for them."""

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

import acf.sim
from acf.lowering import Program
from acf.rtl.axi.spec import AxiSpec
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.words import Bits, Encoded, encode
from acf.rtl.lockstep.model import run_model
from acf.rtl.lockstep.output import stream_flits
from acf.rtl.lockstep.run import Product, random_product
from acf.sim.fabric.traffic import WORK

SIZES = FabricSizes(
    acf.sim.spec(
        "acf-512",
        mesh_rows=2,
        mesh_columns=2,
        scus_per_cluster=1,
        tile=8,
        link_bytes=16,
        queue_packets=2,
        parallel_slots=4,
        accumulator_tiles=2,
        prefetch_packets=2,
    ),
    command_depth=4,
    memory_flits=1 << 12,
)
ONE_UNIT = replace(SIZES, shape=replace(SIZES.shape, mesh_rows=1, mesh_columns=1), command_depth=2)
AXI = AxiSpec(data_bits=32, address_bits=24, burst_beats=8, outstanding_reads=4, outstanding_writes=2)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A product lowered and encoded; what the model gives: output bits ``[m, n]`` and every unit's cycles of work."""

    program: Program
    encoded: Encoded
    expected: NDArray[np.uint32]
    work: list[int]
    shape: tuple[int, int]


def operands(product: Product, program: Program) -> tuple[Bits, Bits]:
    """The serial and the parallel operand."""
    return (product.b.T, product.a.T) if program.swapped else (product.a, product.b)


def some_product(reduces: bool, least_commands: int = 1, seed: int = 0, most: int = 4) -> Prepared:
    """The first random product from ``seed`` on whose sums are added or not, with so many commands on some line.

    Every row has commands and every stream has results.
    """
    rows = SIZES.shape.mesh_rows
    for number in count(seed):
        product = random_product(number, SIZES.shape.tile, most)
        program = product.lower(SIZES.shape)
        if program.reduces != reduces:
            continue
        serial, parallel = operands(product, program)
        encoded = encode(program, SIZES, serial, parallel)
        commands = [len(each) for each in encoded.commands]
        is_wanted = max(commands) >= least_commands and min(commands[:rows]) > 0
        if is_wanted and min(stream_flits(SIZES, program, encoded)) > 0:
            break
    model = run_model(program, SIZES, encoded, serial, parallel, product.stalls(program))
    work = model.unit_cycles[:, WORK].tolist()
    return Prepared(program, encoded, model.output, work, (serial.shape[0], parallel.shape[1]))
