"""Scaling of logic between technology nodes, energy and area. SRAM has figures of its own (`acf.cost.sram`)."""

from acf.cost.figures import Figure

_STILLMAKER_BAAS = "Stillmaker and Baas, Integration 58 (2017): energy of an operation against 45 nm"

LOGIC_ENERGY: dict[int, Figure] = {
    65: Figure(1.25, "of 45 nm", _STILLMAKER_BAAS),
    45: Figure(1.0, "of 45 nm", _STILLMAKER_BAAS),
    28: Figure(0.51, "of 45 nm", _STILLMAKER_BAAS),
    16: Figure(0.19, "of 45 nm", _STILLMAKER_BAAS),
    7: Figure(0.10, "of 45 nm", _STILLMAKER_BAAS),
}
"""Energy of the same logic at each node, in nm."""


def logic_energy_scale(technology_nm: int) -> float:
    """Energy of logic at a node over that at 65 nm, where the designs are published.

    >>> round(logic_energy_scale(28), 3)
    0.408
    """
    return LOGIC_ENERGY[technology_nm].value / LOGIC_ENERGY[65].value


def logic_area_scale(technology_nm: int) -> float:
    """Area of logic at a node over that at 65 nm; an assumption: both sides shrink with the node's name.

    >>> round(logic_area_scale(45), 3)
    0.479
    """
    return (technology_nm / 65) ** 2
