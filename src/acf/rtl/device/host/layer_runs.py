"""Layers from memory to memory: cycles of the gates beside those of the simulator with the same memory ports."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.device.fetcher import Slots
from acf.rtl.device.host.simulation import DeviceRun, DeviceSimulation
from acf.rtl.device.sequencer import settle_cycles
from acf.rtl.verify.lockstep.products import Product
from acf.sim.fabric.memory_ports import MemoryPorts, play_through_ports
from acf.sim.fabric.play import play

REQUEST_CYCLES = 6
"""Cycles of a read beyond the memory's own latency: request queue, arbiter, address out, and a word assembled."""


def memory_ports(sizes: FabricSizes, axi: AxiSpec, latency_cycles: int) -> MemoryPorts:
    """The ports of a device as the simulator's model sees them."""
    slots = Slots(sizes, axi)
    return MemoryPorts(
        masters=axi.masters,
        bytes_per_cycle=axi.beat_bytes,
        latency_cycles=latency_cycles + REQUEST_CYCLES,
        row_command_bytes=slots.row * axi.beat_bytes,
        column_command_bytes=slots.column * axi.beat_bytes,
        finish_cycles=settle_cycles(sizes),
    )


@dataclass(frozen=True)
class LayerRun:
    """One layer: the device's run, the model's cycles with the same ports, and those with operands on chip."""

    name: str
    dataflow: str
    run: DeviceRun
    model_cycles: int
    on_chip_cycles: int

    @property
    def ratio(self) -> float:
        """Cycles of the gates over those of the model."""
        return self.run.cycles / self.model_cycles

    def record(self) -> dict[str, Any]:
        """All figures as plain values."""
        return asdict(self) | {"ratio": round(self.ratio, 4)}


def run_layers(device: DeviceSimulation, layers: Mapping[str, Product]) -> Iterator[LayerRun]:
    """Run every layer on the device and on the model."""
    sizes = device.sizes
    ports = memory_ports(sizes, device.axi, device.latency_cycles)
    for name, product in layers.items():
        program = product.lower(sizes.shape)
        dataflow = f"split-K x {program.split}" if program.reduces else "output-stationary"
        modelled = play_through_ports(program, sizes.shape, ports).cycles
        yield LayerRun(name, dataflow, device.run(product), modelled, play(program, sizes.shape).cycles)


def layer_table(runs: list[LayerRun]) -> str:
    """The runs as a Markdown table."""
    head = "| layer | dataflow | cycles in gates | model, same ports | ratio | model, on chip | bytes read | written |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for each in runs:
        run = each.run
        lines.append(
            f"| {each.name} | {each.dataflow} | {run.cycles:,} | {each.model_cycles:,} | {each.ratio:.3f} "
            f"| {each.on_chip_cycles:,} | {run.read_bytes:,} | {run.written_bytes:,} |"
        )
    return "\n".join(lines)
