"""Area and energy per operation as synthesised, beside what the simulator charges for the same things."""

from dataclasses import asdict, dataclass
from typing import Any

from acf.cost import MAC_65NM_MM2, MAC_65NM_PJ, logic_area_scale
from acf.cost.mesh import MESH_FIGURES
from acf.rtl.design.arithmetic.mac import MacUnit
from acf.rtl.design.fabric.sizes import FabricSizes
from acf.rtl.design.fabric.top import Fabric
from acf.rtl.tools.liberty import Liberty
from acf.rtl.tools.reports.area import AreaReport, measure_area
from acf.rtl.tools.reports.power import measure_power
from acf.rtl.tools.reports.stimuli import mac_stimulus
from acf.sim.fabric.spec import AdaptiveFabric

TABLE_NODE_NM = 65
"""The node of the simulator's figures."""

MAC_CYCLES = 2000


@dataclass(frozen=True)
class Cost:
    """One quantity: as synthesised with the library, that brought to 65 nm, and the simulator's; ``unit`` of all."""

    name: str
    unit: str
    synthesised: float
    scaled: float
    simulated: float

    @property
    def ratio(self) -> float:
        """Synthesised at 65 nm over simulated."""
        return self.scaled / self.simulated


@dataclass(frozen=True)
class CostTable:
    """The quantities of a fabric, with the library's node and supply."""

    node_nm: int
    voltage: float
    costs: tuple[Cost, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"ratios": {cost.name: cost.ratio for cost in self.costs}}


def compare_costs(spec: AdaptiveFabric, liberty: Liberty, node_nm: int) -> CostTable:
    """Synthesise a fabric and its MAC unit with a library of ``node_nm`` and set both beside the simulator's figures.

    Area shrinks with the square of the node; energy of switching with the capacitance, as the node, and the square of
    the supply.
    """
    fabric = measure_area(Fabric(FabricSizes(spec, products=False)), "fabric", liberty)
    mac = measure_area(MacUnit(), "mac", liberty)
    areas, bits = _areas(spec, fabric, mac, node_nm), _bits(spec, fabric)
    return CostTable(node_nm, liberty.voltage, (*areas, *bits, *_mac_energies(liberty, node_nm)))


def _areas(spec: AdaptiveFabric, fabric: AreaReport, mac: AreaReport, node_nm: int) -> tuple[Cost, ...]:
    def cost(name: str, gate_equivalents: float, simulated_mm2: float) -> Cost:
        area = gate_equivalents * fabric.gate_area * 1e-6
        return Cost(
            name, "mm2", area, area * logic_area_scale(TABLE_NODE_NM) / logic_area_scale(node_nm), simulated_mm2
        )

    modules = fabric.modules
    clusters = sum(
        modules[name].gate_equivalents * modules[name].instances
        for name in ("cluster", "first_cluster")
        if name in modules
    )
    simulated = spec.area_mm2
    return (
        cost("multiply-accumulate unit", mac.gate_equivalents, MAC_65NM_MM2.value),
        cost(
            "logic of an SCU, its share of the cluster",
            clusters / spec.scus,
            (simulated["mac"] + simulated.get("control", 0.0)) / spec.scus,
        ),
        cost(
            "lines and controllers, a cluster's share",
            (fabric.gate_equivalents - clusters) / spec.clusters,
            simulated["mesh"] / spec.clusters,
        ),
        cost(
            "logic of the fabric",
            fabric.gate_equivalents,
            simulated["mac"] + simulated["mesh"] + simulated.get("control", 0.0),
        ),
    )


def _mac_energies(liberty: Liberty, node_nm: int) -> tuple[Cost, ...]:
    costs = []
    for zeros in (0.0, 0.5, 0.9):
        inputs = mac_stimulus(None, MAC_CYCLES, zeros, seed=0)
        report = measure_power(MacUnit(), "mac", inputs, MAC_CYCLES, liberty)
        name = f"multiply-accumulate unit, {zeros:.0%} zeros, a cycle"
        costs.append(_energy(name, report.switched_per_cycle, liberty, node_nm, MAC_65NM_PJ.value * (1 - zeros)))
    return tuple(costs)


def _energy(name: str, switched: float, liberty: Liberty, node_nm: int, simulated_pj: float) -> Cost:
    """Half the switched capacitance times the square of the supply, and that at 65 nm."""
    pj = switched * liberty.capacitance_pf * liberty.voltage**2 / 2
    supply = MESH_FIGURES["supply_65nm_v"].value / liberty.voltage
    return Cost(name, "pJ", pj, pj * TABLE_NODE_NM / node_nm * supply**2, simulated_pj)


def _bits(spec: AdaptiveFabric, fabric: AreaReport) -> tuple[Cost, ...]:
    """Memory of a cluster; it has no node."""
    piece_bits = 8 * spec.tile**2 * spec.value_bytes
    stores = (spec.queue_packets + spec.parallel_slots) * piece_bits
    sums = 2 * spec.accumulator_tiles * spec.tile**2 * 32
    built = float(
        next(fabric.modules[name].memory_bits for name in ("cluster", "first_cluster") if name in fabric.modules)
    )
    return (Cost("memory of a cluster", "bits", built, built, float(stores + sums)),)
