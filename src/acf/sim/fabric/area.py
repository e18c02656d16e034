"""Area and leakage of the fabric.

Published MACs, memories of the SRAM table, routers as derived in `acf.cost.mesh`, control by our own synthesis.
"""

from math import ceil, sqrt
from typing import TYPE_CHECKING

from acf.cost import MAC_65NM_MM2, sram_leakage_mw, sram_mm2
from acf.cost.mesh import router_mm2
from acf.sim.fabric.control import control_mm2, index_controller_bytes, topology_unit_bytes

if TYPE_CHECKING:
    from acf.sim.fabric.spec import AdaptiveFabric


def area_mm2(spec: "AdaptiveFabric") -> dict[str, float]:
    """Square millimetres by component."""
    accumulators = local_memory_mm2(spec, spec.accumulator_bytes) * spec.scus
    on_chip = sram_mm2(spec.technology_nm, spec.bank_bytes) * spec.on_chip_bytes / spec.bank_bytes
    index = sram_mm2(spec.technology_nm, index_controller_bytes(spec)) * spec.index_controllers
    topology = sram_mm2(spec.technology_nm, topology_unit_bytes(spec))
    routers = router_mm2(spec.link_bytes, virtual_channels=1, queue_flits=spec.hop_cycles, groups=0)
    control = {} if spec.control_energy == "none" else {"control": control_mm2(spec)}
    return {
        "mac": MAC_65NM_MM2.value * spec.macs_per_cycle,
        "sram": _stores_mm2(spec) * spec.clusters + accumulators + on_chip + index + topology,
        "mesh": routers * spec.clusters,
    } | control


def cluster_side_mm(spec: "AdaptiveFabric") -> float:
    """Side of a cluster, its MACs, memories and share of the control in a square: the length of a link."""
    macs = spec.scus_per_cluster * spec.lanes * MAC_65NM_MM2.value
    accumulators = spec.scus_per_cluster * local_memory_mm2(spec, spec.accumulator_bytes)
    return sqrt(macs + accumulators + _stores_mm2(spec) + control_mm2(spec) / spec.clusters)


def leakage_w(spec: "AdaptiveFabric") -> float:
    """Watts that leak from the memories."""
    cluster = sram_leakage_mw(spec.technology_nm, spec.queue_bytes)
    cluster += sram_leakage_mw(spec.technology_nm, spec.store_bytes)
    accumulators = sram_leakage_mw(spec.technology_nm, spec.accumulator_bytes) * spec.scus
    on_chip = sram_leakage_mw(spec.technology_nm, spec.bank_bytes) * spec.on_chip_bytes / spec.bank_bytes
    index = sram_leakage_mw(spec.technology_nm, index_controller_bytes(spec)) * spec.index_controllers
    index += sram_leakage_mw(spec.technology_nm, topology_unit_bytes(spec))
    return (cluster * spec.clusters + accumulators + on_chip + index) * 1e-3


def _stores_mm2(spec: "AdaptiveFabric") -> float:
    """Queue and store of a cluster."""
    return sum(local_memory_mm2(spec, size) for size in (spec.queue_bytes, spec.store_bytes))


def local_memory_mm2(spec: "AdaptiveFabric", size_bytes: int) -> float:
    """A memory of a cluster, in banks of at most ``local_bank_bytes``."""
    banks = ceil(size_bytes / spec.local_bank_bytes)
    return banks * sram_mm2(spec.technology_nm, size_bytes if banks == 1 else spec.local_bank_bytes)
