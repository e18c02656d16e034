"""The fabric in gates, simulated cycle by cycle: it reads descriptor, index and operands from memory and walks them.

For small products: a cycle of a small fabric takes tens of microseconds in Verilator, milliseconds in Amaranth's
simulator.
"""

from functools import cached_property
from math import ceil
from typing import ClassVar

import numpy as np

from acf.lowering import FabricShape
from acf.lowering.descriptor import ProductDescriptor
from acf.rtl.design.axi.spec import AxiSpec
from acf.rtl.design.fabric.shapes import SMALL_SHAPE
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.index.indexed_program import index_program
from acf.rtl.device.device import DEVICE_FLITS
from acf.rtl.device.host.descriptor_image import lay_out_indexed
from acf.rtl.device.host.simulation import DeviceSimulation
from acf.rtl.device.walking import WalkerOption
from acf.runtime.arithmetic import flushed
from acf.runtime.backends.backend import Architecture, Backend, Launched
from acf.runtime.compile import Bound, bind, compile_product, lowered
from acf.runtime.errors import InvalidDeviceError, NotSupportedError
from acf.runtime.link import HostLink
from acf.runtime.matrices import MatrixProduct, join_results, split_product
from acf.runtime.numbers import Values, round_to_bf16, to_bf16_bits
from acf.runtime.product import Product
from acf.runtime.program import Program
from acf.runtime.rtl_spec import RtlSpec
from acf.runtime.timeline import Cost
from acf.sim import find_architecture
from acf.sim.fabric import AdaptiveFabric

COMMAND_DEPTH = 16
"""Commands that a line holds; the walking controller refills them."""


class Rtl(Backend):
    """Values and cycles from the gates, which walk the index of every product, whatever its mapping.

    Energy is not modelled. Bit for bit, the results are those of "sim" for the same fabric and program.
    """

    name: ClassVar[str] = "rtl"

    def __init__(self, architecture: "Architecture | RtlSpec | None", link: HostLink, walked: bool = True) -> None:
        super().__init__(None, link, walked)
        self.options = architecture if isinstance(architecture, RtlSpec) else RtlSpec(architecture)
        named = self.options.fabric
        found = SMALL_SHAPE if named is None else find_architecture(named)[1]
        if not isinstance(found, AdaptiveFabric):
            raise InvalidDeviceError(f"{named} is no fabric, so it has no RTL; use one such as acf-512")
        self.spec: AdaptiveFabric = found
        self._sizes = FabricSizes(found, command_depth=COMMAND_DEPTH, memory_flits=DEVICE_FLITS)

    @property
    def fabric(self) -> FabricShape:
        """The fabric that was built."""
        return self.spec

    def compile(self, product: Product) -> Program:
        """Descriptors and indices that the gates walk."""
        return compile_product(product, self.spec, walked=True)

    def check(self, program: Program) -> None:
        """Refuse programs that the controller in gates cannot walk."""
        super().check(program)
        for each in program.fabric_products:
            self._check_limits(program.name, each.descriptor)

    def _check_limits(self, name: str, descriptor: ProductDescriptor) -> None:
        limits = self.options
        found = {
            "index_words": (descriptor.index_words, limits.index_words),
            "column_tiles": (descriptor.column_tiles, limits.column_tiles),
        }
        if descriptor.split_k:
            found["row_tiles"] = -(-descriptor.rows // descriptor.tile), limits.column_tiles
        else:
            found["blocks"] = descriptor.blocks, limits.blocks
            found["k_tiles"] = descriptor.k_tiles, limits.depths
        for field, (value, most) in found.items():
            if value > most:
                raise NotSupportedError(
                    f"{name} has {field} {value}, and this device is built for {most}; run fewer rows or a smaller "
                    "layer, or raise the limits in RtlSpec"
                )

    def copy_cost(self, direction: str, nbytes: int, measured_s: float) -> Cost:
        """By the host link, or through the device's memory."""
        if direction == "d2d":
            return Cost(2 * nbytes / self.spec.dram_sustained_bytes_per_s, dram_bytes=2 * nbytes)
        return Cost(self.link.copy_seconds(nbytes))

    def compute(self, launched: Launched) -> tuple[Values, Cost]:
        """Every matrix multiplication of the product in turn."""
        product = launched.program.product
        assert product is not None
        program = lowered(launched.program, self.spec, walked=True)
        self.check(program)
        operands = [flushed(round_to_bf16(each)) for each in launched.operands]
        results, cycles, moved = [], 0, 0
        for number, each in enumerate(split_product(product, operands)):
            values, cost = self._multiply(bind(program, self.spec, number, each), each, product.phase)
            results.append(values)
            cycles, moved = cycles + cost.cycles, moved + cost.dram_bytes
        result = join_results(product, results)
        return result, Cost(cycles / self.spec.clock_hz, cycles=cycles, dram_bytes=moved)

    def _multiply(self, bound: Bound, matrices: MatrixProduct, phase: str) -> tuple[Values, Cost]:
        """Lay the product out in the device's memory, start the device, read the result."""
        shape = matrices.a.shape[0], matrices.b.shape[1]
        if not bound.gemm.nonzero_pairs:
            return np.zeros(shape, dtype=np.float32), Cost()
        operands = to_bf16_bits(matrices.a), to_bf16_bits(matrices.b)
        indexed = index_program(bound.product, bound.mapping, self._sizes, operands, direct=phase == "input_grad")
        image = lay_out_indexed(indexed, self._axi)
        if image.end > self.options.memory_bytes:
            raise NotSupportedError(
                f"the product needs {image.end} bytes of the device's memory of {self.options.memory_bytes}; run a "
                "smaller one, or raise memory_bytes in RtlSpec"
            )
        run = self._simulation.execute(image, indexed.encoded, self.options.most_cycles)
        moved = run.read_bytes + run.written_bytes
        return run.output.view(np.float32), Cost(run.cycles / self.spec.clock_hz, cycles=run.cycles, dram_bytes=moved)

    @cached_property
    def _axi(self) -> AxiSpec:
        return AxiSpec(data_bits=min(256, 8 * self.spec.link_bytes))

    @cached_property
    def _simulation(self) -> DeviceSimulation:
        """Built when the first program runs: compiling the gates may take a minute."""
        options = self.options
        walker = WalkerOption(options.index_words, options.blocks, options.column_tiles, options.depths)
        beats = -(-options.memory_bytes // self._axi.beat_bytes)
        latency = ceil(self.spec.dram_latency_s * self.spec.clock_hz)
        return DeviceSimulation.of(self._sizes, self._axi, beats, latency, options.simulator, walker)
