"""The host's side of the fabric: registers behind AXI4-Lite, and a whole program through them."""

from typing import Any

import numpy as np

from acf.program import FabricShape
from acf.rtl.fabric.device import Device
from acf.rtl.fabric.registers import IDENTITY, REGISTERS, STAGING
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.words import encode
from acf.rtl.lockstep.model import run_model
from acf.rtl.lockstep.run import random_product
from acf.rtl.simulation import Simulation

SHAPE = FabricShape(
    mesh_rows=1,
    mesh_columns=1,
    units_per_cluster=1,
    tile=8,
    link_bytes=16,
    queue_packets=2,
    parallel_slots=4,
    accumulator_tiles=2,
    prefetch_packets=2,
)


class Host:
    """Drives the bus one transaction at a time, with nothing but the bus and the memory behind the controllers."""

    def __init__(self, device: Simulation) -> None:
        self.device = device

    def write(self, offset: int, value: int) -> None:
        answer = self.device.run({"awvalid": [1, 0], "wvalid": [1, 0], "awaddr": offset, "wdata": value, "bready": 1})
        assert answer["awready"][0] == answer["wready"][0] == answer["bvalid"][1] == 1

    def read(self, offset: int) -> int:
        answer = self.device.run({"arvalid": [1, 0], "araddr": offset, "rready": 1})
        assert answer["arready"][0] == answer["rvalid"][1] == 1
        return int(answer["rdata"][1])

    def load(self, line: int, commands: list[int], words: int) -> None:
        self.write(REGISTERS["load_line"][0], line)
        self.write(REGISTERS["load_address"][0], 0)
        for command in commands:
            for word in range(words):
                self.write(STAGING + 4 * word, command >> 32 * word & 0xFFFFFFFF)
            self.write(REGISTERS["load_command"][0], 1)
        self.write(REGISTERS["load_count"][0], len(commands))


def memory_inputs(outputs: dict[str, Any], pending: list[list[tuple[int, int]]], flits: list[list[int]]) -> Any:
    """What ideal memories of two lines say in the next cycle: one flit of the oldest request each."""
    address, count = int(outputs["memory_address"][0]), int(outputs["memory_flits"][0])
    bits = [len(f"{each:b}") for each in (255, 8)]
    data = np.zeros((1, 4), dtype=np.uint64)
    valid = first = 0
    for line in range(2):
        if int(outputs["memory_ask"][0]) >> line & 1:
            start = address >> line * bits[0] & 255
            length = count >> line * bits[1] & 15
            pending[line] += [(start + flit, int(flit == 0)) for flit in range(length)]
        if pending[line]:
            place, is_first = pending[line].pop(0)
            valid |= 1 << line
            first |= is_first << line
            word = flits[line][place]
            data[0, 2 * line : 2 * line + 2] = word & (1 << 64) - 1, word >> 64
    return {"memory_valid": valid, "memory_first": first, "memory_data": data}


def test_the_host_reads_who_it_talks_to_and_what_it_wrote() -> None:
    host = Host(Simulation(Device(FabricSizes(SHAPE, 16, 256)), "pysim"))
    assert host.read(REGISTERS["identity"][0]) == IDENTITY
    host.write(REGISTERS["edge_cycles"][0], 5)
    assert host.read(REGISTERS["edge_cycles"][0]) == 5
    assert host.read(0x1FC) == 0


def test_a_program_that_is_loaded_by_the_bus_runs_to_its_end() -> None:
    sizes = FabricSizes(SHAPE, 16, 256)
    product = random_product(1, tile=8, most=2)
    program = product.lower(SHAPE)
    encoded = encode(program, sizes, product.a, product.b)
    device = Device(sizes)
    words = -(-device._fabric.command_bits // 32)
    simulation = Simulation(device, "pysim")
    host = Host(simulation)
    for line, commands in enumerate(encoded.commands):
        host.load(line, commands, words)
    assert host.read(REGISTERS["cycles"][0]) == 0
    start = {"awaddr": REGISTERS["control"][0], "wdata": 1 | int(program.reduces) << 1}
    simulation.run({"awvalid": 1, "wvalid": 1, **start}, 1)
    pending: list[list[tuple[int, int]]] = [[], []]
    driven: Any = {"bready": 1}
    values: list[int] = []
    for _ in range(400):
        outputs = simulation.run(driven, 1)
        driven = memory_inputs(outputs, pending, encoded.flits)
        if int(outputs["result_valid"][0]):
            values += [int(part) for part in outputs["result"][0]]
    assert host.read(REGISTERS["status"][0]) == 1
    model = run_model(program, sizes, encoded, product.a, product.b, product.stalls(program))
    assert 0 < host.read(REGISTERS["cycles"][0]) < 400
    assert host.read(REGISTERS["work"][0]) == model.unit_cycles[0, 0] > 0
    flits = int(program.round_flits.sum())
    assert len(values) == 2 * flits
    expected = np.sort(model.output[model.output != 0] >> 16)
    found = np.array(values, dtype="<u8").view("<u2")
    assert (np.sort(found[found != 0]) == expected).all()
