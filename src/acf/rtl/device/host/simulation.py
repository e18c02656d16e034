"""A device in simulation with memory at its buses: runs a program from memory to memory and compares its output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.errors import RtlError
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.encoding import EncodedProgram
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import IndexedProgram
from acf.rtl.device.host.bench import DeviceBench
from acf.rtl.device.host.bus_profile import BusProfile
from acf.rtl.device.host.descriptor_image import lay_out_indexed
from acf.rtl.device.host.image import MemoryImage, Segment, lay_out, read_output
from acf.rtl.device.registers import ERRORS, REGISTERS
from acf.rtl.device.walking import WalkerOption
from acf.rtl.tools.port_arrays import Words
from acf.rtl.tools.simulation import Simulation
from acf.rtl.verify.lockstep.fabric_simulation import cluster_blocks
from acf.rtl.verify.lockstep.products import Product
from acf.rtl.verify.lockstep.reference_output import ordered_output

BATCH_CYCLES = 256
DONE, FULL = 1, 8
"""Bits of the register `status`."""


@dataclass(frozen=True)
class DeviceRun:
    """Cycles of a program on a device, what moved on its buses, and whether each bit is the reference's."""

    cycles: int
    commands: int
    read_bytes: int
    written_bytes: int
    held_cycles: int
    profile: BusProfile
    is_equal: bool


@dataclass(frozen=True, eq=False)
class DeviceOutput:
    """What a program left: float32 bits ``output [m, n]``, the counters of the device, and what its buses did."""

    output: NDArray[np.uint32]
    cycles: int
    read_bytes: int
    written_bytes: int
    held_cycles: int
    profile: BusProfile


@dataclass(frozen=True)
class QueuedRun:
    """Products that were started one behind another: busy cycles of the device for all, and whether each is right."""

    busy_cycles: int
    are_equal: list[bool]


def total_of(runs: Sequence[DeviceRun]) -> DeviceRun:
    """All runs together, equal if each of them is."""
    names = ("cycles", "commands", "read_bytes", "written_bytes", "held_cycles")
    return DeviceRun(
        **{name: sum(getattr(run, name) for run in runs) for name in names},
        profile=BusProfile.total_of([run.profile for run in runs]),
        is_equal=all(run.is_equal for run in runs),
    )


@dataclass(frozen=True, eq=False)
class DeviceSimulation:
    """A device of ``sizes``; behind each master ``beats`` of memory, which answers after ``latency_cycles``."""

    sizes: FabricSizes
    axi: AxiSpec
    beats: int
    simulation: Simulation
    latency_cycles: int
    _moved: list[Words] = field(default_factory=list)

    @classmethod
    def for_products(
        cls,
        sizes: FabricSizes,
        products: Sequence[Product],
        latency_cycles: int = 50,
        backend: str = "auto",
        masters: int = 1,
    ) -> "DeviceSimulation":
        """Build a device whose memories are large enough for each of ``products``."""
        axi = AxiSpec(data_bits=min(256, sizes.flit_bits), masters=masters)
        beats = max(memory_beats(sizes, axi, product) for product in products)
        return cls.of(sizes, axi, beats, latency_cycles, backend)

    @classmethod
    def of(
        cls,
        sizes: FabricSizes,
        axi: AxiSpec,
        beats: int,
        latency_cycles: int = 50,
        backend: str = "auto",
        walker: WalkerOption | None = None,
        vector: str | None = None,
    ) -> "DeviceSimulation":
        """Build the device for a backend of `Simulation`; ``walker`` and ``vector`` as in `Device`."""
        bench = DeviceBench(sizes, axi, beats, walker, vector)
        simulation = Simulation(bench, backend, "-O0", cluster_blocks(sizes.shape))
        return cls(sizes, axi, beats, simulation, latency_cycles)

    def run(self, product: Product, most_cycles: int = 10_000_000) -> DeviceRun:
        """Lower, lay out, load, run and read back a product."""
        encoded = product.encode(self.sizes)
        self.simulation.restart()
        return self.run_image(lay_out(encoded, self.axi, channel_bytes=self.channel_bytes), encoded, most_cycles)

    def run_indexed(self, indexed: IndexedProgram, most_cycles: int = 10_000_000) -> DeviceRun:
        """Run a product from its descriptor; the device makes the commands."""
        self.simulation.restart()
        image = lay_out_indexed(indexed, self.axi, channel_bytes=self.channel_bytes)
        return self.run_image(image, indexed.encoded, most_cycles)

    def run_queued(self, products: Sequence[IndexedProgram], most_cycles: int = 1_000_000) -> QueuedRun:
        """Run products from their descriptors, each started as soon as a walker of the device is free."""
        self.simulation.restart()
        base, images = 0, []
        for indexed in products:
            images.append(lay_out_indexed(indexed, self.axi, base, self.channel_bytes))
            base = images[-1].segments[0].end
        for image in images:
            self._load(image)
        for image in images:
            self._wait(most_cycles, is_over=lambda status: not status & FULL, cycles=1)
            for offset, value in image.registers:
                self._write(offset, value)
        self._wait(most_cycles)
        busy_cycles = self._read(REGISTERS["busy_cycles"][0])
        outputs = [read_output(image, each.encoded, self._peek) for image, each in zip(images, products, strict=True)]
        are_right = [
            bool((output == ordered_output(each.encoded)).all()) for output, each in zip(outputs, products, strict=True)
        ]
        return QueuedRun(busy_cycles, are_right)

    @property
    def channel_bytes(self) -> int:
        """Bytes of the memory behind each master."""
        return self.beats * self.axi.beat_bytes

    def run_image(self, image: MemoryImage, encoded: EncodedProgram, most_cycles: int = 10_000_000) -> DeviceRun:
        """Load an image, run it and compare its output with the reference; memory keeps what lies elsewhere in it."""
        left = self._execute(image, encoded, most_cycles)
        return DeviceRun(
            cycles=left.cycles,
            commands=sum(map(len, encoded.commands)),
            read_bytes=left.read_bytes,
            written_bytes=left.written_bytes,
            held_cycles=left.held_cycles,
            profile=left.profile,
            is_equal=bool((left.output == ordered_output(encoded)).all()),
        )

    def execute(self, image: MemoryImage, encoded: EncodedProgram, most_cycles: int = 10_000_000) -> DeviceOutput:
        """Run an image from the device's initial state; ``encoded`` says where each tile of the output is."""
        self.simulation.restart()
        return self._execute(image, encoded, most_cycles)

    def _execute(self, image: MemoryImage, encoded: EncodedProgram, most_cycles: int) -> DeviceOutput:
        self._load(image)
        self._moved.clear()
        for offset, value in image.registers:
            self._write(offset, value)
        self._wait(most_cycles)
        moved = np.concatenate(self._moved) != 0
        output = read_output(image, encoded, self._peek)
        counts = {name: self._read(REGISTERS[name][0]) for name in ("cycles", "read_beats", "written_beats")}
        return DeviceOutput(
            output=output,
            cycles=counts["cycles"],
            read_bytes=counts["read_beats"] * self.axi.beat_bytes,
            written_bytes=counts["written_beats"] * self.axi.beat_bytes,
            held_cycles=self._read(REGISTERS["held_cycles"][0]),
            profile=BusProfile.of(moved[:, 0], moved[:, 1], counts["cycles"]),
        )

    def load(self, address: int, content: bytes) -> None:
        """Put bytes into the memory of the first master, from ``address`` on; both whole beats."""
        self._load_segments([Segment(address, content, address + len(content))])

    def reset(self) -> None:
        """Reset the device; the memory of its first master keeps what it holds."""
        content = self.peek(0, self.channel_bytes)
        self.simulation.restart()
        self.load(0, content)

    def peek(self, address: int, size: int) -> bytes:
        """Bytes of memory; ``address`` and ``size`` are whole beats."""
        return self._peek(address, size)

    def write_register(self, name: str, value: int) -> None:
        """Write a register by its name."""
        self._write(REGISTERS[name][0], value)

    def write_registers(self, writes: Sequence[tuple[int, int]]) -> None:
        """Write registers by their offsets, in order."""
        for offset, value in writes:
            self._write(offset, value)

    @property
    def cycles(self) -> int:
        """Cycles that the registers and `run_for` took since they were last forgotten."""
        return sum(map(len, self._moved))

    def read_register(self, name: str) -> int:
        """Read a register by its name."""
        return self._read(REGISTERS[name][0])

    def run_for(self, cycles: int) -> None:
        """Let the device run."""
        self._transact(cycles)

    def _load(self, image: MemoryImage) -> None:
        self._load_segments(image.segments)

    def _load_segments(self, segments: Sequence[Segment]) -> None:
        """Write the non-zero beats; memory starts as zeros."""
        beat = self.axi.beat_bytes
        for master, segment in enumerate(segments):
            words = np.frombuffer(segment.content, dtype=np.uint8).reshape(-1, beat)
            places = np.flatnonzero(words.any(axis=1))
            if not places.size:
                continue
            packed = np.zeros((len(places), -(-beat // 8) * 8), dtype=np.uint8)
            packed[:, :beat] = words[places]
            self.simulation.run(
                {
                    "load": 1 << master,
                    "load_address": places.astype(np.uint64) + segment.base // beat % self.beats,
                    "load_data": packed.view("<u8").astype(np.uint64),
                }
            )

    def _peek(self, address: int, size: int) -> bytes:
        """Bytes of memory; ``address`` and ``size`` are whole beats."""
        if not size:
            return b""
        beat = self.axi.beat_bytes
        master, first = divmod(address // beat, self.beats)
        places = np.arange(size // beat, dtype=np.uint64) + first
        found = self.simulation.run({"peek_address": np.append(places, places[-1:])})["peek"][1:]
        content = np.ascontiguousarray(found.astype("<u8")).reshape(len(places), -1).view(np.uint8)
        return content[:, master * beat : (master + 1) * beat].tobytes()

    def _write(self, offset: int, value: int) -> None:
        self._transact(2, awvalid=[1, 0], wvalid=[1, 0], awaddr=offset, wdata=value, wstrb=15, bready=1)

    def _read(self, offset: int) -> int:
        return int(self._transact(2, arvalid=[1, 0], araddr=offset, rready=1)["s_axi_rdata"][1])

    def _transact(self, cycles: int, **bus: ArrayLike) -> dict[str, Words]:
        driven = {f"s_axi_{port}": word for port, word in bus.items()}
        found = self.simulation.run({"latency": self.latency_cycles, **driven}, cycles)
        self._moved.append(np.stack([found["reading"], found["writing"]], axis=1))
        return found

    def _wait(
        self,
        most_cycles: int,
        is_over: Callable[[int], bool] = lambda status: bool(status & DONE),
        cycles: int = BATCH_CYCLES,
    ) -> None:
        """Run until the status ``is_over``, by default until the device is done; look at it every so many cycles."""
        for _ in range(-(-most_cycles // cycles)):
            self._transact(cycles)
            error = self._read(REGISTERS["error"][0])
            if error:
                seen = [text for bit, text in enumerate(ERRORS.values()) if error >> bit & 1]
                raise RtlError(f"the device reports: {'; '.join(seen)}; check the memory image")
            if is_over(self._read(REGISTERS["status"][0])):
                return
        raise RtlError(f"the device is not done after {most_cycles} cycles; give it more, or compare it with the model")


def memory_beats(sizes: FabricSizes, axi: AxiSpec, product: Product) -> int:
    """Beats of a memory that holds each master's part of a product's program and results, a power of two."""
    image = lay_out(product.encode(sizes), axi)
    most = max(segment.end - segment.base for segment in image.segments)
    return 1 << (most // axi.beat_bytes - 1).bit_length()
