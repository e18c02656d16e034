"""A modelled accelerator: values in its own arithmetic, time and energy from `acf.sim`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import ClassVar
from weakref import WeakSet

from acf.lowering.descriptor import WORD_BYTES
from acf.lowering.packing import lower_product
from acf.runtime.arithmetic import fabric_values, flushed, in_parallel, ordered_product
from acf.runtime.backends.backend import Architecture, Backend, Launched
from acf.runtime.backends.residency import Residency
from acf.runtime.compile import Bound, bind, compile_product, lowered
from acf.runtime.link import HostLink
from acf.runtime.matrices import MatrixProduct, join_results, split_product
from acf.runtime.numbers import Values, round_to_bf16
from acf.runtime.product import Argument, Product
from acf.runtime.program import Program
from acf.runtime.timeline import Cost
from acf.sim import find_architecture
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sim.fabric import AdaptiveFabric
from acf.sim.fabric.index_traffic import index_traffic
from acf.sim.fabric.runner import run_product
from acf.sim.memory import DramTraffic
from acf.trace import BitTensor
from acf.trace.op import ROLES

RESULT_ROLES = {"forward": "activation", "input_grad": "gradient", "weight_grad": "gradient"}


@dataclass(frozen=True, eq=False)
class _Multiplication:
    """A matrix multiplication of a launch; ``bound`` to its fabric product, None where the machine is no fabric."""

    matrices: MatrixProduct
    bound: Bound | None

    @property
    def products(self) -> int:
        """Multiplications without the zeros of the operands skipped."""
        (rows, depth), (_, columns) = (each.shape for each in self.matrices.operands)
        return rows * depth * columns


class Simulator(Backend):
    """An architecture of `acf.architectures()`, a TOML file or a Spec.

    Operands are rounded to bf16, products are added in float32: on a fabric in the order of the program, elsewhere by
    rising k. Operands come from DRAM unless on-chip memory still has them. The first launch of a program also loads
    it: its index crosses the host link, and the controller rewrites routes and owners.
    """

    name: ClassVar[str] = "sim"
    default: ClassVar[Architecture] = "acf-512"
    spec: AcceleratorSpec

    def __init__(self, architecture: Architecture | None, link: HostLink, walked: bool = False) -> None:
        super().__init__(None, link, walked)
        _, self.spec = find_architecture(self.default if architecture is None else architecture)
        self._residency = Residency(self.spec.on_chip_bytes)
        self._loaded: WeakSet[Program] = WeakSet()

    @property
    def fabric(self) -> AdaptiveFabric | None:
        """The modelled fabric; None for another kind of machine."""
        return self.spec if isinstance(self.spec, AdaptiveFabric) else None

    def compile(self, product: Product) -> Program:
        """Descriptors and indices for a fabric; a portable program for another machine."""
        return Program(product) if self.fabric is None else compile_product(product, self.fabric, self.walked)

    def copy_cost(self, direction: str, nbytes: int, measured_s: float) -> Cost:
        """By the host link, or on the device through DRAM, read and write."""
        if direction == "d2d":
            joules = 2 * nbytes * 8 * self.spec.dram_pj_per_bit * 1e-12
            return Cost(2 * nbytes / self.spec.dram_sustained_bytes_per_s, {"dram": joules}, dram_bytes=2 * nbytes)
        return Cost(self.link.copy_seconds(nbytes))

    def compute(self, launched: Launched) -> tuple[Values, Cost]:
        """Every matrix multiplication of the product in turn."""
        product = launched.program.product
        assert product is not None
        operands = launched.operands if product.operand_dtype == "bf16" else map(round_to_bf16, launched.operands)
        launched = replace(launched, operands=[flushed(each) for each in operands])
        multiplications = self._multiplications(launched)
        traffic = self._read(launched)
        values, count = in_parallel(
            lambda: [self._values(each) for each in multiplications],
            lambda: self._count(multiplications, traffic),
            sum(each.products for each in multiplications),
        )
        result = join_results(product, values)
        return result, self._written(launched, traffic, count, result)

    def replay(self, launched: Launched, result: Values) -> Cost:
        """Counts alone."""
        multiplications, traffic = self._multiplications(launched), self._read(launched)
        return self._written(launched, traffic, self._count(multiplications, traffic), result)

    def _multiplications(self, launched: Launched) -> list[_Multiplication]:
        """The matrix multiplications of a launch, on a fabric mapped as its program says."""
        assert launched.program.product is not None
        matrices, fabric = split_product(launched.program.product, launched.operands), self.fabric
        if fabric is None:
            return [_Multiplication(each, None) for each in matrices]
        program = lowered(launched.program, fabric, self.walked)
        return [_Multiplication(each, bind(program, fabric, number, each)) for number, each in enumerate(matrices)]

    def _values(self, each: _Multiplication) -> Values:
        matrices, bound = each.matrices, each.bound
        if bound is None or self.fabric is None:
            return ordered_product(matrices.a, matrices.b)
        return fabric_values(*matrices.operands, bound.product, bound.mapping, self.fabric)

    def _read(self, launched: Launched) -> DramTraffic:
        """What crosses the DRAM pins because the operands are read."""
        product = launched.program.product
        assert product is not None
        *inputs, _ = product.arguments
        arguments = zip(inputs, launched.operands, ROLES[product.phase], strict=True)
        return self._residency.read(launched.tensors, [self._stored_bytes(product, *each) for each in arguments])

    def _count(self, multiplications: Sequence[_Multiplication], traffic: DramTraffic) -> ComputeCount:
        """Counts of all matrix multiplications while ``traffic`` crosses the pins."""
        share = traffic.divided(len(multiplications))
        return reduce(add, (self._count_product(each, share) for each in multiplications), ComputeCount(0, 0, 0))

    def _written(self, launched: Launched, traffic: DramTraffic, count: ComputeCount, result: Values) -> Cost:
        """The cost of a launch, its ``result`` written."""
        product = launched.program.product
        assert product is not None
        result_bytes = self._stored_bytes(product, product.arguments[-1], result, RESULT_ROLES[product.phase])
        written = self._residency.write(launched.result, result_bytes)
        dram_bytes = traffic.total_bytes + count.streamed_bytes + written
        return self._with_load(launched.program, count, self._cost(count, dram_bytes))

    def _count_product(self, each: _Multiplication, share: DramTraffic) -> ComputeCount:
        """Counts of one matrix multiplication while ``share`` crosses the pins."""
        bound, fabric = each.bound, self.fabric
        if bound is None or fabric is None:
            return self.spec.count_with_traffic(each.matrices.gemm(), share)
        packets = lower_product(bound.product, fabric, bound.mapping)
        index = index_traffic(bound.mapping, bound.product, fabric)
        return run_product(fabric, bound.gemm, bound.product, packets, share, index)

    def _stored_bytes(self, product: Product, argument: Argument, values: Values, role: str) -> int:
        """Bytes of an argument in the machine's memory, weights and their gradients as matrices with absent blocks."""
        if not self.spec.keeps_tensors:
            return 0
        stored = product.weight.to_matrix(values) if argument.name.startswith("weight") else values
        return self.spec.stored_bytes(BitTensor.from_array(stored), role)

    def _cost(self, count: ComputeCount, dram_bytes: int) -> Cost:
        """As `acf.simulate` counts an operation: DRAM traffic overlaps with compute, and the slower decides."""
        spec = self.spec
        launch = spec.launch_cycles if count.dense_macs else 0
        cycles = launch + max(count.cycles, spec.dram_cycles(dram_bytes))
        seconds = cycles / spec.clock_hz
        dram_j = dram_bytes * 8 * spec.dram_pj_per_bit * 1e-12
        energy_j = dict(count.energy_j) | {"dram": dram_j} | spec.standing_j(seconds)
        return Cost(seconds, energy_j, cycles, dram_bytes, count.dense_macs, count.effectual_macs)

    def _with_load(self, program: Program, count: ComputeCount, cost: Cost) -> Cost:
        """The first launch of a program on a fabric also loads its index and rewrites routes and owners."""
        fabric = self.fabric
        if fabric is None or program in self._loaded:
            return cost
        self._loaded.add(program)
        words = sum(each.index.size for each in lowered(program, fabric, self.walked).fabric_products)
        update_cycles = count.other_cycles * fabric.topology_every_steps
        seconds = self.link.copy_seconds(WORD_BYTES * words) + update_cycles / fabric.clock_hz
        return replace(cost, seconds=cost.seconds + seconds, cycles=cost.cycles + update_cycles)
