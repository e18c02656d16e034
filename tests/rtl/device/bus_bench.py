"""Tests that run inside the simulator: a host at the registers, memory at the master, both as slow as they like."""

import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiSlave, MemoryRegion
from cocotbext.axi.constants import AxiResp

from acf.rtl.design.axi.spec import PAGE_BYTES
from acf.rtl.device.fetcher import Slots
from acf.rtl.device.host.drain import lay_out_cleaning
from acf.rtl.device.host.image import MemoryImage, lay_out, read_output
from acf.rtl.device.registers import ERRORS, IDENTITY, REGISTERS
from tests.rtl.device.programs import AXI, SIZES, Prepared, some_product

MEMORY_BYTES = 1 << 20
DONE, BUSY, STOPPED = 1, 2, 4


class Bench:
    """A device out of reset, a host and a memory; ``memory`` may be one of the test's own."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        cocotb.start_soon(Clock(dut.clk, 4, "ns").start())
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)

    async def reset(self) -> None:
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 4)

    async def read(self, name: str) -> int:
        return int(await self.host.read_dword(REGISTERS[name][0]))

    async def start(self, image: MemoryImage, memory: Any) -> None:
        memory.write(image.segments[0].base, image.segments[0].content)
        await write_registers(self, image)

    async def ended(self, most_cycles: int = 60_000) -> int:
        """The status once the device is no longer busy."""
        for _ in range(most_cycles // 50):
            await ClockCycles(self.dut.clk, 50)
            status = await self.read("status")
            if not status & BUSY:
                return status
        raise AssertionError(f"still busy after {most_cycles} cycles")

    async def check(self, product: Prepared, memory: Any, base: int) -> None:
        """Run a product from ``base`` on and compare every bit of its output."""
        image = lay_out(product.encoded, AXI, base)
        await self.start(image, memory)
        assert await self.ended() == DONE
        assert await self.read("error") == 0
        found = read_output(image, product.encoded, memory.read)
        assert (found == product.expected).all()
        assert found.any()


class BusMonitor:
    """Watches both address channels of the master: rules of bursts, and how many reads are under way."""

    def __init__(self, dut: Any) -> None:
        self.most_reads = self.reads = self.bursts = 0
        self.longest = 0
        cocotb.start_soon(self._watch(dut))

    async def _watch(self, dut: Any) -> None:
        while True:
            await RisingEdge(dut.clk)
            for channel in ("ar", "aw"):
                ports = {name: getattr(dut, f"m_axi_{channel}{name}").value for name in ("valid", "ready")}
                if all(int(value) for value in ports.values()):
                    self._burst(dut, channel)
            if int(dut.m_axi_rvalid.value) and int(dut.m_axi_rready.value) and int(dut.m_axi_rlast.value):
                self.reads -= 1

    def _burst(self, dut: Any, channel: str) -> None:
        address, length, size, kind = (
            int(getattr(dut, f"m_axi_{channel}{name}").value) for name in ("addr", "len", "size", "burst")
        )
        assert kind == 1
        assert 8 << size == AXI.data_bits
        assert length < AXI.burst_beats
        assert address % PAGE_BYTES + ((length + 1) << size) <= PAGE_BYTES
        self.bursts += 1
        self.longest = max(self.longest, length + 1)
        if channel == "ar":
            self.reads += 1
            self.most_reads = max(self.most_reads, self.reads)
            assert self.reads <= AXI.outstanding_reads


def pauses(seed: int, share: float) -> Iterator[bool]:
    choose = random.Random(seed)
    while True:
        yield choose.random() < share


def slow_down(bench: Bench, memory: Any, share: float) -> None:
    """Random pauses on each of the ten channels."""
    for seed, (side, name) in enumerate(
        (side, name)
        for side in (bench.host, memory)
        for name in ("write_if.aw", "write_if.w", "write_if.b", "read_if.ar", "read_if.r")
    ):
        interface, channel = name.split(".")
        getattr(getattr(side, interface), f"{channel}_channel").set_pause_generator(pauses(seed, share))


async def write_registers(bench: Bench, image: MemoryImage) -> None:
    for offset, value in image.registers:
        await bench.host.write_dword(offset, value)


def ram(dut: Any) -> AxiRam:
    return AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=MEMORY_BYTES)


@cocotb.test()
async def registers_read_what_was_written_and_part_of_a_word_is_refused(dut: Any) -> None:
    bench = Bench(dut)
    await bench.reset()
    assert await bench.read("identity") == IDENTITY
    for line, page in ((1, 7), (3, 9)):
        await bench.host.write_dword(REGISTERS["line"][0], line)
        await bench.host.write_dword(REGISTERS["data_page"][0], page)
    await bench.host.write_dword(REGISTERS["line"][0], 1)
    assert await bench.read("data_page") == 7
    answer = await bench.host.write(REGISTERS["data_page"][0], b"\x01")
    assert answer.resp == AxiResp.SLVERR
    assert await bench.read("data_page") == 7


@cocotb.test()
async def programs_of_both_kinds_run_one_after_the_other(dut: Any) -> None:
    bench, memory, monitor = Bench(dut), ram(dut), BusMonitor(dut)
    await bench.reset()
    for number, reduces in enumerate((False, True, False)):
        await bench.check(some_product(reduces, seed=100 * number), memory, base=number << 17)
    await bench.check(some_product(True, split=2), memory, base=3 << 17)
    assert monitor.longest == AXI.burst_beats
    assert monitor.most_reads == AXI.outstanding_reads


@cocotb.test()
async def a_program_longer_than_the_command_memory_runs_with_pauses_on_every_channel(dut: Any) -> None:
    bench, memory = Bench(dut), ram(dut)
    BusMonitor(dut)
    slow_down(bench, memory, share=0.5)
    await bench.reset()
    for reduces in (False, True):
        product = some_product(reduces, least_commands=3 * SIZES.command_depth, most=5)
        await bench.check(product, memory, base=5 * PAGE_BYTES)
    assert await bench.read("read_beats") > 0
    assert await bench.read("written_beats") > 0


@cocotb.test()
async def results_wait_for_a_memory_that_takes_few(dut: Any) -> None:
    bench, memory = Bench(dut), ram(dut)
    await bench.reset()
    memory.write_if.w_channel.set_pause_generator(pauses(0, 0.9))
    await bench.check(some_product(False, seed=40, least_commands=8), memory, base=0)
    assert await bench.read("held_cycles") > 0
    await bench.check(some_product(True, seed=40, least_commands=8), memory, base=0)
    assert await bench.read("held_cycles") > 0


async def work_of_scus(bench: Bench) -> list[int]:
    work = []
    for scu in range(SIZES.shape.scus):
        await bench.host.write_dword(REGISTERS["counted_scu"][0], scu)
        await ClockCycles(bench.dut.clk, 16)
        work.append(await bench.read("work"))
    return work


@cocotb.test()
async def the_counters_are_those_of_the_program(dut: Any) -> None:
    bench, memory = Bench(dut), ram(dut)
    await bench.reset()
    product = some_product(False, seed=7)
    before = await work_of_scus(bench)
    await bench.check(product, memory, base=0)
    after = await work_of_scus(bench)
    assert [late - early for early, late in zip(before, after, strict=True)] == product.work
    assert 0 < max(product.work) < await bench.read("cycles")


class FailingRegion(MemoryRegion):
    """Memory in which some bytes answer with an error."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.broken: range = range(0)

    async def _read(self, address: int, length: int, **kwargs: Any) -> bytes:
        if address in self.broken:
            raise OSError("no such memory")
        return bytes(await super()._read(address, length, **kwargs))

    async def _write(self, address: int, data: bytes, **kwargs: Any) -> None:
        if address in self.broken:
            raise OSError("no such memory")
        await super()._write(address, data, **kwargs)


def broken_pages(image: MemoryImage) -> dict[str, tuple[range, int]]:
    """For every error of the bus the bytes that must fail, and the status then."""
    values = dict(image.registers[:4])  # of line 0
    commands, flits = (values[REGISTERS[name][0]] * PAGE_BYTES for name in ("command_page", "data_page"))
    return {
        "operand_failed": (range(flits, flits + PAGE_BYTES), DONE),
        "command_failed": (range(commands, commands + PAGE_BYTES), STOPPED),
        "write_failed": (range(image.segments[0].results, image.segments[0].results + PAGE_BYTES), DONE),
    }


@cocotb.test()
async def an_error_of_the_bus_sets_its_bit_and_the_interrupt(dut: Any) -> None:
    bench = Bench(dut)
    memory = FailingRegion(MEMORY_BYTES)
    AxiSlave(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, target=memory)
    product = some_product(False, seed=3)
    image = lay_out(product.encoded, AXI, interrupts=True)
    await memory.write(image.segments[0].base, image.segments[0].content)
    for name, (broken, status) in broken_pages(image).items():
        await bench.reset()
        assert int(dut.interrupt_request.value) == 0
        memory.broken = broken
        await write_registers(bench, image)
        assert await bench.ended() == status
        assert await bench.read("error") == 1 << list(ERRORS).index(name)
        assert int(dut.interrupt_request.value) == 1


@cocotb.test()
async def a_device_that_was_stopped_is_cleaned_and_runs_again_without_a_reset(dut: Any) -> None:
    bench = Bench(dut)
    memory = FailingRegion(MEMORY_BYTES)
    AxiSlave(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, target=memory)
    await bench.reset()
    product = some_product(False, seed=3, least_commands=3 * SIZES.command_depth)
    image = lay_out(product.encoded, AXI)
    program = image.segments[0]
    memory[program.base : program.results] = program.content
    slot = Slots(SIZES, AXI).row * AXI.beat_bytes
    commands = dict(image.registers[:4])[REGISTERS["command_page"][0]] * PAGE_BYTES
    memory.broken = range(commands + 2 * SIZES.command_depth * slot, commands + PAGE_BYTES)
    await write_registers(bench, image)
    assert await bench.ended() == STOPPED
    memory.broken = range(0)
    cleaning = lay_out_cleaning(SIZES, AXI, base=1 << 19)
    drain = cleaning.segments[0]
    memory[drain.base : drain.results] = drain.content
    await write_registers(bench, cleaning)
    assert await bench.ended() == DONE
    drained = memory[drain.results : drain.end]
    assert any(drained)
    await write_registers(bench, image)
    assert await bench.ended() == DONE
    assert await bench.read("error") == 0
    found = read_output(image, product.encoded, lambda at, size: memory[at : at + size])
    assert (found == product.expected).all()
