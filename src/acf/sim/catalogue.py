"""Every machine that has a name: shipped ones, their variants, and plug-ins, those that fail included."""

from dataclasses import dataclass

from acf.errors import AcfError
from acf.plugins import ARCHITECTURES as MACHINE_PLUGINS
from acf.plugins import describe_plugin, plugin_names
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.registry import ARCHITECTURES, find_architecture, shipped_names


@dataclass(frozen=True)
class Machine:
    """A name, where it comes from, and its Spec, or why there is none (``failure``)."""

    name: str
    origin: str
    spec: AcceleratorSpec | None = None
    failure: str = ""

    @property
    def total_area_mm2(self) -> float | None:
        """Area with the vector unit; None where none is known."""
        return (sum((self.spec.area_mm2 | self.spec.vector_area_mm2).values()) or None) if self.spec else None


def catalogue() -> list[Machine]:
    """All machines by name, public ones first; a plug-in that cannot be loaded has its reason."""
    shipped = [
        Machine(name, "public" if name in ARCHITECTURES else "variant", find_architecture(name)[1])
        for name in shipped_names()
    ]
    return shipped + [_plugged(name) for name in plugin_names(MACHINE_PLUGINS)]


def _plugged(name: str) -> Machine:
    if name in shipped_names():
        where = describe_plugin(MACHINE_PLUGINS, name)
        return Machine(name, "plug-in", failure=f"{where} has the name of a shipped machine, which is used instead")
    try:
        return Machine(name, "plug-in", find_architecture(name)[1])
    except AcfError as error:
        return Machine(name, "plug-in", failure=str(error))
