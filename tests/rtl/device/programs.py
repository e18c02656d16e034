"""The devices that tests build, and products for them."""

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

import acf.sim
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.decoding import stream_flits
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.walking import WalkerOption
from acf.rtl.verify.lockstep.model import run_model
from acf.rtl.verify.lockstep.products import random_product
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
ONE_SCU = replace(SIZES, shape=replace(SIZES.shape, mesh_rows=1, mesh_columns=1), command_depth=2)
TWO_SCUS = replace(SIZES.shape, scus_per_cluster=2)
AXI = AxiSpec(data_bits=32, address_bits=24, burst_beats=8, outstanding_reads=4, outstanding_writes=2)

VECTOR_SIZES = replace(ONE_SCU, memory_flits=1 << 14, command_depth=8)
VECTOR_WALKER = WalkerOption(index_words=128, blocks=16, column_tiles=4, depths=4, moves=2)
VECTOR_AXI = AxiSpec(data_bits=64, address_bits=20, burst_beats=8, outstanding_reads=4, outstanding_writes=2)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A product lowered and encoded; what the model gives: output bits ``[m, n]`` and every SCU's cycles of work."""

    encoded: EncodedProgram
    expected: NDArray[np.uint32]
    work: list[int]


def some_product(reduces: bool, least_commands: int = 1, seed: int = 0, most: int = 4, split: int = 1) -> Prepared:
    """The first random product from ``seed`` on whose sums are added or not, with so many commands on some line.

    Its reduction is split over ``split`` groups of mesh columns. Every row has commands and every stream has results.
    """
    rows = SIZES.shape.mesh_rows
    for number in count(seed):
        product = random_product(number, SIZES.shape.tile, most)
        encoded = product.encode(SIZES)
        if encoded.program.reduces != reduces or encoded.program.split != split:
            continue
        commands = [len(each) for each in encoded.commands]
        is_wanted = max(commands) >= least_commands and min(commands[:rows]) > 0
        if is_wanted and min(stream_flits(encoded)) > 0:
            break
    model = run_model(encoded, product.stalls(encoded.program))
    return Prepared(encoded, model.output, model.scu_cycles[:, WORK].tolist())
