"""The parts of a liberty file that area and power need: areas, pins and their capacitances."""

import re
from dataclasses import dataclass
from pathlib import Path

from acf.errors import RtlError

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_GROUP = re.compile(r"(\w+)\s*\(\s*\"?([^()\"]*?)\"?\s*\)\s*\{")
_NUMBER = r"\s*:\s*\"?([-+\d.eE]+)\"?"


@dataclass(frozen=True)
class LibertyPin:
    """A pin: where it leads, what it loads its net with, in the file's unit, and whether it is a clock."""

    is_output: bool
    capacitance: float
    is_clock: bool = False


@dataclass(frozen=True)
class LibertyCell:
    """A cell: its area in the file's unit and its pins by name."""

    area: float
    pins: dict[str, LibertyPin]


@dataclass(frozen=True)
class Liberty:
    """A library of cells, its supply voltage, its unit of capacitance in pF, and the text it was read from."""

    text: str
    voltage: float
    capacitance_pf: float
    cells: dict[str, LibertyCell]

    @property
    def gate_area(self) -> float:
        """Area of the smallest two-input NAND, which is one gate equivalent."""
        areas = [cell.area for name, cell in self.cells.items() if re.search(r"nand_?2", name, re.I)]
        if not areas or min(areas) <= 0:
            raise RtlError("the liberty file has no two-input NAND (NAND2...) with an area; name a file that has one")
        return min(areas)

    @classmethod
    def read(cls, path: Path) -> "Liberty":
        """Read a file; raises `RtlError` where it is none."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise RtlError(f"{path} cannot be read ({error.strerror}); name a liberty file") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str = "the text") -> "Liberty":
        """Take cells, areas and pins out of liberty text."""
        plain = _COMMENT.sub("", text)
        cells = {}
        for title, body in _groups(plain, "cell"):
            pins = {pin: _pin(inside) for pin, inside in _groups(body, "pin")}
            cells[title] = LibertyCell(_value(_outer(body), "area", 0.0), pins)
        if not cells:
            raise RtlError(f"{name} holds no cells; name a liberty file (.lib)")
        return cls(text, _value(plain, "nom_voltage", 1.0), _capacitance_pf(plain), cells)


def _pin(body: str) -> LibertyPin:
    return LibertyPin(
        bool(re.search(r"direction\s*:\s*\"?output", body)),
        _value(_outer(body), "capacitance", 0.0),
        bool(re.search(r"\bclock\s*:\s*\"?true", body)),
    )


def _capacitance_pf(text: str) -> float:
    """The file's unit of capacitance; 1 pF where it names none, as the format has it."""
    found = re.search(r"capacitive_load_unit\s*\(\s*([\d.]+)\s*,\s*\"?([fp])f\"?\s*\)", text, re.I)
    if found is None:
        return 1.0
    return float(found[1]) * (1.0 if found[2].lower() == "p" else 1e-3)


def _value(text: str, name: str, otherwise: float) -> float:
    found = re.search(rf"\b{name}{_NUMBER}", text)
    return float(found[1]) if found else otherwise


def _groups(text: str, kind: str) -> list[tuple[str, str]]:
    """Title and inside of every group of a kind."""
    return [
        (match[2].strip(), text[match.end() : _closing(text, match.end())])
        for match in _GROUP.finditer(text)
        if match[1] == kind
    ]


def _closing(text: str, start: int) -> int:
    """Where the brace that was opened before ``start`` closes."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(text)


def _outer(body: str) -> str:
    """A group's own lines, without those of groups inside it."""
    kept, position = [], 0
    for match in _GROUP.finditer(body):
        if match.start() >= position:
            kept.append(body[position : match.start()])
            position = _closing(body, match.end()) + 1
    return "".join([*kept, body[position:]])
