"""The host's side of the device: its registers."""

from acf.rtl.device.device import Device
from acf.rtl.device.registers import IDENTITY, REGISTERS, RegisterFile
from acf.rtl.tools.reports.synthesis import synthesise
from acf.rtl.tools.simulation import Simulation
from tests.rtl.device.programs import ONE_SCU


class Host:
    """Drives the registers one transaction at a time."""

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


def test_the_host_reads_who_it_talks_to_and_what_it_wrote() -> None:
    host = Host(Simulation(Device(ONE_SCU), "pysim"))
    assert host.read("identity") == IDENTITY
    host.write("result_stride", 5)
    for line, page in ((0, 3), (1, 4)):
        host.write("line", line)
        host.write("command_page", page)
    assert host.read("result_stride") == 5
    assert host.read("command_page") == 4
    host.write("line", 0)
    assert host.read("command_page") == 3
    assert host.read_at(0xFC) == 0


def test_registers_of_arrays_can_be_synthesised() -> None:
    resources = synthesise(RegisterFile(ONE_SCU, page_bits=28), "registers").resources
    assert resources.flip_flops > 2 * (24 + 28 + 28)
    assert resources.dsps == 0
