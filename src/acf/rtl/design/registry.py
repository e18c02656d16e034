"""The components that the commands know by name. Needs Amaranth: `acf.extras.require` it first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acf.errors import RtlError
from acf.rtl.design.accelerators.dts_threshold import ThresholdUnit
from acf.rtl.design.accelerators.sore_sorter import SorterSpec, TopKSorter
from acf.rtl.design.accelerators.tensordash_scheduler import WIDE, TensorDashScheduler
from acf.rtl.design.arithmetic.add import Fp32Adder
from acf.rtl.design.arithmetic.mac import MacUnit
from acf.rtl.design.arithmetic.multiply import Bf16Multiplier
from acf.rtl.design.index.block_walker import BlockWalker
from acf.rtl.design.index.csc_walker import RelativeCscWalker
from acf.rtl.design.index.prefix_sum import PrefixSum
from acf.rtl.design.mesh.network import Injector, MeshNetwork
from acf.rtl.design.mesh.planned_mesh import PlannedMesh
from acf.rtl.design.mesh.route_planner import RoutePlanner
from acf.rtl.design.mesh.router import MeshRouter
from acf.rtl.design.primitives.fifo import BoundedFifo, CreditCounter
from acf.rtl.design.vector.lane import VectorLane
from acf.rtl.design.vector.unit import VectorSpec, VectorUnit


@dataclass(frozen=True)
class Unit:
    """How to build a component, and what it is."""

    build: Callable[[], Any]
    about: str


UNITS: dict[str, Unit] = {
    "multiplier": Unit(Bf16Multiplier, "bfloat16 x bfloat16 to float32"),
    "adder": Unit(Fp32Adder, "float32 + float32"),
    "mac": Unit(MacUnit, "the SCU's datapath: multiply-accumulate that skips zeros"),
    "adder-products": Unit(lambda: Fp32Adder(products=True), "float32 + float32, shifting by products, for FPGAs"),
    "scheduler": Unit(TensorDashScheduler, "TensorDash scheduler, 4 lanes, 4 deep"),
    "scheduler-wide": Unit(lambda: TensorDashScheduler(WIDE), "TensorDash scheduler, 16 lanes, 3 deep"),
    "sorter": Unit(TopKSorter, "SORE lane, 2 of 8"),
    "sorter-wide": Unit(lambda: TopKSorter(SorterSpec(kept=4, group_size=16)), "SORE lane, 4 of 16"),
    "threshold": Unit(ThresholdUnit, "DTS: comparator, counter, divider, multiplier"),
    "prefix-sum": Unit(PrefixSum, "offsets of 8 rows per cycle"),
    "block-walker": Unit(BlockWalker, "block-CSR addresses, along rows or columns"),
    "csc-walker": Unit(RelativeCscWalker, "compressed columns with relative indices"),
    "fifo": Unit(BoundedFifo, "queue of 4 words of 32 bits"),
    "credits": Unit(CreditCounter, "a sender's credits"),
    "injector": Unit(Injector, "an endpoint's way into its router"),
    "router": Unit(MeshRouter, "5 ports, 2 virtual channels of 4 flits, 64 ids in two banks"),
    "mesh": Unit(MeshNetwork, "2 x 2 routers with injectors"),
    "route-planner": Unit(RoutePlanner, "shares 16 block rows among 2 x 2 clusters and writes the routing table"),
    "vector-lane": Unit(VectorLane, "a lane of the vector unit: float32 multiply-add or comparison in a cycle"),
    "vector-unit": Unit(VectorUnit, "8 lanes: batch normalisation, ReLU, addition and SGD, an operation a cycle"),
    "vector-unit-transformer": Unit(
        lambda: VectorUnit(VectorSpec(programs="transformer")),
        "the same with softmax, loss, layer normalisation and GELU",
    ),
    "planned-mesh": Unit(PlannedMesh, "2 x 2 routers whose table the planner makes and swaps"),
}
"""Components by name."""


def unit_named(name: str) -> Unit:
    """The unit of a name; refuses an unknown one with the known ones."""
    if name not in UNITS:
        raise RtlError(f"unit {name!r} is not one of {', '.join(UNITS)}; use one of these names")
    return UNITS[name]


def module_name(name: str) -> str:
    """The name of a unit's top module.

    >>> module_name("prefix-sum")
    'acf_prefix_sum'
    """
    return "acf_" + name.replace("-", "_")
