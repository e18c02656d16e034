"""Energy of a flit through a router and over a link, and area of a router, at 65 nm: derived, not published."""

from acf.cost.figures import FIGURES, PUBLISHED_CORES, REGISTER_65NM_PJ_PER_BYTE, Figure
from acf.cost.sram import sram_mm2, sram_pj_per_byte

_STAGING_BYTES = 256 * PUBLISHED_CORES  # 4 deep x 4 lanes x 2 B for each of the 4 rows and 4 columns, and both buffers

_WIRES = "Ho, Mai and Horowitz, The Future of Wires, Proc. IEEE 2001"

MESH_FIGURES: dict[str, Figure] = {
    "wire_capacitance_pf_per_mm": Figure(0.2, "pF/mm", _WIRES + ": repeated wires, nearly constant over technologies"),
    "supply_65nm_v": Figure(1.2, "V", "assumption: nominal supply of a low-power 65 nm process"),
    "rising_share": Figure(0.25, "transitions per bit", "assumption: random data, one bit in four rises"),
    "wire_pitch_65nm_um": Figure(0.2, "um", "assumption: intermediate metal of 65 nm, two layers for the crossbar"),
    "control_share": Figure(
        0.1, "of the data path", "assumption: allocators, credits and pointers over queues and crossbar"
    ),
    "register_mm2_per_byte": Figure(
        FIGURES["tensordash_staging_buffers_mm2"].value / _STAGING_BYTES,
        "mm2 per byte",
        "derived from TensorDash (Mahmoud et al., 2020), Table IV, 65 nm: staging buffers over their 64 KB",
    ),
}
"""What the mesh's energy and area are derived from."""

WIRE_65NM_PJ_PER_BIT_MM = Figure(
    MESH_FIGURES["rising_share"].value
    * MESH_FIGURES["wire_capacitance_pf_per_mm"].value
    * MESH_FIGURES["supply_65nm_v"].value ** 2,
    "pJ per bit and mm",
    "derived: share of rising bits x capacitance x supply squared, each in MESH_FIGURES",
)
"""A bit over a millimetre of wire at 65 nm: 0.072 pJ."""


def crossbar_side_mm(flit_bytes: int, ports: int = 5) -> float:
    """Side of a crossbar whose wires lie at the metal's pitch."""
    return ports * flit_bytes * 8 * MESH_FIGURES["wire_pitch_65nm_um"].value * 1e-3


def router_pass_pj(flit_bytes: int, groups: int, ports: int = 5) -> float:
    """Picojoules of one flit in one router: written to and read from a queue, table looked up, through the crossbar.

    A queue is registers. A bit crosses the crossbar along one side and up another. The table is an SRAM of a byte per
    group; without groups there is none.
    """
    queue_pj = 2 * flit_bytes * REGISTER_65NM_PJ_PER_BYTE.value
    crossbar_pj = flit_bytes * 8 * 2 * crossbar_side_mm(flit_bytes, ports) * WIRE_65NM_PJ_PER_BIT_MM.value
    table_pj = sram_pj_per_byte(65, groups) if groups else 0.0
    return (queue_pj + crossbar_pj) * (1 + MESH_FIGURES["control_share"].value) + table_pj


def link_pj(flit_bytes: int, link_mm: float) -> float:
    """Picojoules of one flit over one link."""
    return flit_bytes * 8 * link_mm * WIRE_65NM_PJ_PER_BIT_MM.value


def router_mm2(flit_bytes: int, virtual_channels: int, queue_flits: int, groups: int, ports: int = 5) -> float:
    """Square millimetres of one router: queues, crossbar, control, and both banks of its table."""
    queues = ports * virtual_channels * queue_flits * flit_bytes * MESH_FIGURES["register_mm2_per_byte"].value
    crossbar = crossbar_side_mm(flit_bytes, ports) ** 2
    table = 2 * sram_mm2(65, groups) if groups else 0.0
    return (queues + crossbar) * (1 + MESH_FIGURES["control_share"].value) + table
