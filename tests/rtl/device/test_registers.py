"""The device in Amaranth's simulator, with a memory of a few lines: registers, and a program out of that memory."""

from collections import deque
from typing import Any

from tests.rtl.device.programs import operands

from acf.program import FabricShape
from acf.rtl.axi.spec import AxiSpec
from acf.rtl.fabric.device import Device
from acf.rtl.fabric.registers import IDENTITY, REGISTERS
from acf.rtl.fabric.sizes import FabricSizes
from acf.rtl.fabric.words import encode
from acf.rtl.host.image import lay_out, read_output
from acf.rtl.lockstep.model import run_model
from acf.rtl.lockstep.run import random_product
from acf.rtl.simulation import Simulation

SIZES = FabricSizes(
    FabricShape(
        mesh_rows=1,
        mesh_columns=1,
        units_per_cluster=1,
        tile=8,
        link_bytes=16,
        queue_packets=2,
        parallel_slots=4,
        accumulator_tiles=2,
        prefetch_packets=2,
    ),
    command_depth=2,
    memory_flits=256,
)
AXI = AxiSpec(data_bits=64, address_bits=20)


class Host:
    """Drives the registers one transaction at a time; memory stands still meanwhile."""

    def __init__(self, device: Simulation) -> None:
        self.device = device

    def write(self, name: str, value: int) -> None:
        self.write_at(REGISTERS[name][0], value)

    def write_at(self, offset: int, value: int) -> None:
        bus = {"awvalid": [1, 0], "wvalid": [1, 0], "awaddr": offset, "wdata": value, "wstrb": 15, "bready": 1}
        answer = self.device.run({f"s_axi_{port}": driven for port, driven in bus.items()})
        assert answer["s_axi_awready"][0] == answer["s_axi_wready"][0] == answer["s_axi_bvalid"][1] == 1
        assert answer["s_axi_bresp"][1] == 0

    def read_at(self, offset: int) -> int:
        bus = {"arvalid": [1, 0], "araddr": offset, "rready": 1}
        answer = self.device.run({f"s_axi_{port}": driven for port, driven in bus.items()})
        assert answer["s_axi_arready"][0] == answer["s_axi_rvalid"][1] == 1
        return int(answer["s_axi_rdata"][1])

    def read(self, name: str) -> int:
        return self.read_at(REGISTERS[name][0])


class AxiMemory:
    """Takes an address whenever one is there; a beat of the oldest burst a cycle, each way."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.reads: deque[tuple[int, int]] = deque()
        self.writes: deque[int] = deque()
        self.answers = 0

    def drive(self) -> dict[str, int]:
        """What it says in the next cycle; the master takes every beat and every answer at once."""
        driven = {"arready": 1, "awready": 1, "wready": 1, "bvalid": int(self.answers > 0)}
        self.answers -= driven["bvalid"]
        if self.reads:
            address, is_last = self.reads.popleft()
            word = int.from_bytes(self.content[address : address + 8], "little")
            driven |= {"rvalid": 1, "rdata": word, "rlast": is_last}
        return {f"m_axi_{port}": value for port, value in driven.items()}

    def take(self, outputs: dict[str, Any]) -> None:
        """What the master said in a cycle in which this memory was ready."""
        said = {name.removeprefix("m_axi_"): int(value[0]) for name, value in outputs.items() if value.ndim == 1}
        if said["arvalid"]:
            length = said["arlen"] + 1
            self.reads += [(said["araddr"] + 8 * beat, int(beat == length - 1)) for beat in range(length)]
        if said["awvalid"]:
            self.writes += [said["awaddr"] + 8 * beat for beat in range(said["awlen"] + 1)]
        if said["wvalid"]:
            address = self.writes.popleft()
            self.content[address : address + 8] = said["wdata"].to_bytes(8, "little")
            self.answers += said["wlast"]


def test_the_host_reads_who_it_talks_to_and_what_it_wrote() -> None:
    host = Host(Simulation(Device(SIZES, AXI), "pysim"))
    assert host.read("identity") == IDENTITY
    host.write("result_page", 5)
    for line, page in ((0, 3), (1, 4)):
        host.write("line", line)
        host.write("command_page", page)
    assert host.read("result_page") == 5
    assert host.read("command_page") == 4
    host.write("line", 0)
    assert host.read("command_page") == 3
    assert host.read_at(0xFC) == 0


def test_a_program_in_memory_runs_to_its_end_and_its_results_are_those_of_the_model() -> None:
    product = random_product(16, tile=8, most=2)
    program = product.lower(SIZES.shape)
    serial, parallel = operands(product, program)
    encoded = encode(program, SIZES, serial, parallel)
    assert max(map(len, encoded.commands)) > SIZES.command_depth
    image = lay_out(program, encoded, SIZES, AXI, base=0x3000)
    simulation, memory = Simulation(Device(SIZES, AXI), "pysim"), AxiMemory(1 << 16)
    memory.content[image.base : image.base + len(image.content)] = image.content
    host = Host(simulation)
    for offset, value in image.registers:
        host.write_at(offset, value)
    for _ in range(1500):
        memory.take(simulation.run(memory.drive(), 1))
    assert host.read("status") == 1
    assert host.read("error") == 0
    model = run_model(program, SIZES, encoded, serial, parallel, product.stalls(program))
    assert host.read("work") == model.unit_cycles[0, 0] > 0
    assert 0 < host.read("cycles") < 1500
    found = read_output(
        image,
        program,
        encoded,
        SIZES,
        lambda address, size: bytes(memory.content[address : address + size]),
        (serial.shape[0], parallel.shape[1]),
    )
    assert (found == model.output).all()
    assert found.any()
