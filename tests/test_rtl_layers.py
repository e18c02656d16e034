"""The rooms of `acf.rtl` import leftwards, as those of the package do."""

import re
from pathlib import Path

import pytest

RTL = Path(__file__).parents[1] / "src" / "acf" / "rtl"
ROOMS = ("design", "tools", "verify", "device")


def test_nothing_lies_loose_beside_the_rooms() -> None:
    assert {path.name for path in RTL.iterdir() if path.name != "__pycache__"} == {"__init__.py", *ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_itself_and_those_before_it(room: str) -> None:
    allowed = ROOMS[: ROOMS.index(room) + 1]
    for path in (RTL / room).rglob("*.py"):
        imported = set(re.findall(r"(?:from|import) acf\.rtl\.(\w+)", path.read_text(encoding="utf-8")))
        assert imported <= set(allowed), f"{path.relative_to(RTL)} imports {imported - set(allowed)}"
