"""Synthesis for an FPGA: LUTs, flip-flops, DSPs and memories of every module, and how deep the logic is."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from acf.errors import RtlError
from acf.rtl.devices import DEVICES, Device
from acf.rtl.flow.hierarchy import all_cells, cells_of_modules, instances
from acf.rtl.flow.verilog import to_rtlil
from acf.rtl.flow.yosys import run_yosys

LUTS_OF_MEMORY: dict[str, int] = {
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32X16DR8": 8,
    "RAM64X8SW": 8,
    "SRL16E": 1,
    "SRLC32E": 1,
}
"""LUTs that a primitive of distributed memory or a shift register takes: UG974, UltraScale libraries guide."""

FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE", "LDCE", "LDPE")
BRAMS = {"RAMB18E2": 0.5, "RAMB36E2": 1.0}


@dataclass(frozen=True)
class Resources:
    """What a module takes of an FPGA; a block RAM of 18 Kb is half of one."""

    luts: float = 0
    flip_flops: float = 0
    dsps: float = 0
    brams: float = 0
    urams: float = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __mul__(self, count: int) -> "Resources":
        return Resources(*(getattr(self, each.name) * count for each in fields(self)))

    def share_of(self, device: Device) -> dict[str, float]:
        """Each resource over what the device has."""
        return {name: value / device.resources[name].value for name, value in asdict(self).items()}

    @classmethod
    def of_cells(cls, cells: Mapping[str, int]) -> "Resources":
        """The resources of primitives counted by type; buffers, carries and wide multiplexers come with the LUTs."""
        luts = sum(count for name, count in cells.items() if re.fullmatch(r"LUT[1-6]|INV", name))
        return cls(
            luts=luts + sum(LUTS_OF_MEMORY.get(name, 0) * count for name, count in cells.items()),
            flip_flops=sum(cells.get(name, 0) for name in FLIP_FLOPS),
            dsps=cells.get("DSP48E2", 0),
            brams=sum(share * cells.get(name, 0) for name, share in BRAMS.items()),
            urams=cells.get("URAM288", 0),
        )


@dataclass(frozen=True)
class ModuleUse:
    """A module of the hierarchy: how often it is there, and what one of it takes, its submodules included."""

    instances: int
    resources: Resources


@dataclass(frozen=True)
class SynthesisReport:
    """What a component takes; ``logic_depth`` is the longest way between registers or memories, in primitives.

    Before placement: no clock rate follows from it.
    """

    name: str
    family: str
    resources: Resources
    modules: dict[str, ModuleUse]
    logic_depth: int
    cells: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the shares of every known device of the family included."""
        shares = {
            name: self.resources.share_of(device) for name, device in DEVICES.items() if device.family == self.family
        }
        return asdict(self) | {"shares": shares}


def check_family(family: str) -> None:
    """Refuse an FPGA family that no known device is of."""
    families = sorted({device.family for device in DEVICES.values()})
    if family not in families:
        raise RtlError(f"target {family!r} is not one of {', '.join(families)}; use one of these names")


def synthesise(component: Any, name: str, family: str = "xcup", depth_of: str | None = None) -> SynthesisReport:
    """Map a component to the primitives of an FPGA family with Yosys, hierarchy kept.

    Logic depth is that of the whole, flattened; or of the module ``depth_of`` where the whole is large.
    """
    check_family(family)
    commands = [
        "read_rtlil top.il",
        f"synth_xilinx -family {family} -top {name} -noiopad -noclkbuf",
        "tee -q -o statistics.json stat -json",
        *([] if depth_of is None else [f"hierarchy -top {depth_of}"]),
        "flatten",
        "delete " + " ".join(f"t:{cell}" for cell in (*FLIP_FLOPS, *BRAMS, *LUTS_OF_MEMORY, "URAM288")),
        "tee -q -o paths.txt ltp -noff",
    ]
    outputs = ["statistics.json", "paths.txt"]
    files = run_yosys(commands, {"top.il": to_rtlil(component, name)}, outputs).files
    cells = cells_of_modules(files["statistics.json"])
    depth = re.search(r"\(length=(\d+)\)", files["paths.txt"])
    counts = instances(cells, name)
    return SynthesisReport(
        name=name,
        family=family,
        resources=_resources(cells, name),
        modules={module: ModuleUse(count, _resources(cells, module)) for module, count in counts.items()},
        logic_depth=int(depth[1]) if depth else 0,
        cells=all_cells(cells, counts),
    )


def _resources(cells: Mapping[str, Mapping[str, int]], module: str) -> Resources:
    """One module with all in it."""
    inside = (_resources(cells, cell) * count for cell, count in cells[module].items() if cell in cells)
    return sum(inside, Resources.of_cells(cells[module]))
