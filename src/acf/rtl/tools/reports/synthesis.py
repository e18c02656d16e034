"""Synthesis for an FPGA: LUTs, flip-flops, DSPs and memories of every module, and logic depth."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from acf.errors import RtlError
from acf.rtl.tools.fpga_mapping import FLIP_FLOPS, LUTS_OF_MEMORY, measure_depth, netlist_of, synthesise_module
from acf.rtl.tools.fpga_parts import FPGA_PARTS, FpgaPart
from acf.rtl.tools.hierarchy import (
    Cells,
    Modules,
    count_instances,
    count_primitives,
    isolate,
    split_modules,
    submodules_of,
    subtree_of,
)
from acf.rtl.tools.result_cache import cached, for_each
from acf.rtl.tools.verilog import to_rtlil

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

    def share_of(self, part: FpgaPart) -> dict[str, float]:
        """Each resource over what the part has."""
        return {name: value / part.resources[name].value for name, value in asdict(self).items()}

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
    """A module of the hierarchy: how often it is there, and what one of it takes, its submodules included.

    ``logic_depth`` is the longest way between registers or memories inside it, in primitives; ``mapper`` is what chose
    its LUTs.
    """

    instances: int
    resources: Resources
    logic_depth: int
    mapper: str


@dataclass(frozen=True)
class SynthesisReport:
    """What a component takes; ``logic_depth`` is the longest way between registers or memories, in primitives.

    Before placement: no clock rate follows from it. ``deepest`` is the least module that has it. Of a module larger
    than `WHOLE_CELLS` ways from one of its parts to another are not looked at.
    """

    name: str
    family: str
    resources: Resources
    modules: dict[str, ModuleUse]
    logic_depth: int
    deepest: str
    cells: dict[str, int]

    def fits(self, part: FpgaPart) -> bool:
        """Whether a part has enough of everything."""
        return all(share <= 1.0 for share in self.resources.share_of(part).values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the shares of every known part of the family included."""
        parts = {name: part for name, part in FPGA_PARTS.items() if part.family == self.family}
        shares = {name: self.resources.share_of(part) for name, part in parts.items()}
        return asdict(self) | {"shares": shares, "fits": {name: self.fits(part) for name, part in parts.items()}}


WHOLE_CELLS = 150_000
"""Primitives up to which the logic depth is that of the whole, flattened."""


def check_family(family: str) -> None:
    """Refuse an FPGA family that no known part is of."""
    families = sorted({part.family for part in FPGA_PARTS.values()})
    if family not in families:
        raise RtlError(f"target {family!r} is not one of {', '.join(families)}; use one of these names")


def synthesise(component: Any, name: str, family: str = "xcup") -> SynthesisReport:
    """Map a component to the primitives of an FPGA family with Yosys, every different module once, hierarchy kept."""
    check_family(family)
    modules = split_modules(to_rtlil(component, name))
    inside = subtree_of(modules, name)
    mapped = for_each(inside, lambda each: cached("fpga", synthesise_module, each, isolate(modules, each), family))
    cells: Cells = {each: mapped[each]["cells"] for each in inside}
    counts = count_instances(cells, name)
    resources = {each: _resources(cells, each) for each in inside}
    sizes = {each: sum(count_primitives(cells, count_instances(cells, each)).values()) for each in inside}
    depths = _depths(modules, mapped, sizes)
    deepest = max(inside, key=lambda each: (depths[each], -sizes[each]))
    return SynthesisReport(
        name=name,
        family=family,
        resources=resources[name],
        modules={
            each: ModuleUse(count, resources[each], depths[each], mapped[each]["mapper"])
            for each, count in counts.items()
        },
        logic_depth=depths[deepest],
        deepest=deepest,
        cells=count_primitives(cells, counts),
    )


def _depths(modules: Modules, mapped: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int]) -> dict[str, int]:
    """Logic depth of every module with all in it; of one that is too large, the greatest of those inside."""
    small = [name for name in sizes if sizes[name] <= WHOLE_CELLS]
    found: dict[str, int] = for_each(small, partial(_depth, modules, mapped))
    for name in sorted(set(sizes) - set(small), key=lambda each: sizes[each]):
        found[name] = max((found[inner] for inner in submodules_of(modules, name)), default=0)
    return found


def _depth(modules: Modules, mapped: Mapping[str, Mapping[str, Any]], name: str) -> int:
    netlists = "\n".join(netlist_of(mapped[inner]) for inner in subtree_of(modules, name))
    depth: int = cached("depth", measure_depth, name, netlists)
    return depth


def _resources(cells: Cells, module: str) -> Resources:
    """One module with all in it."""
    inside = (_resources(cells, cell) * count for cell, count in cells[module].items() if cell in cells)
    return sum(inside, Resources.of_cells(cells[module]))
