"""The designs that commands work on: a component by its name, or the device of a whole fabric."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from acf.errors import RtlError
from acf.rtl.design.fabric.shapes import find_shape
from acf.rtl.design.registry import module_name, unit_named
from acf.rtl.device.device import Device, device_sizes


@dataclass(frozen=True)
class Design:
    """The name of a top module, and what builds it; Amaranth warns of a component that is built and not used."""

    top: str
    build: Callable[[], Any]


def find_design(unit: str | None, config: str | None, products: bool = True) -> Design:
    """The component called ``unit``, or the device of the fabric called ``config``; one of the two is given.

    ``products`` as in `FabricSizes`: whether the fabric's adders are those for an FPGA.
    """
    if (unit is None) == (config is None):
        raise RtlError("name a unit or a fabric with --config, one of the two; `acf rtl units` lists the units")
    if unit is not None:
        return Design(module_name(unit), unit_named(unit).build)
    sizes = device_sizes(find_shape(config), products=products)
    return Design("acf_fabric", lambda: Device(sizes))
