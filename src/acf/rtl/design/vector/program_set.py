"""The programs that a unit is built with, and what they need of a lane."""

from dataclasses import dataclass
from functools import cached_property

from acf.errors import RtlError
from acf.rtl.design.vector.operation import Operation, Programs


@dataclass(frozen=True)
class ProgramSet:
    """``programs`` in the order of their numbers; ``has_rows``: in some of them a lane has a row of a matrix."""

    name: str
    programs: Programs
    has_rows: bool = False

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """All of them, program by program."""
        return tuple(each for program in self.programs.values() for each in program)

    @cached_property
    def operands(self) -> dict[str, tuple[str, ...]]:
        """What each operand can be, in the order of its code in gates."""
        fields = ("left", "right", "addend", "to")
        return {field: tuple(dict.fromkeys(getattr(each, field) for each in self.operations)) for field in fields}

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions that a lane must have, in the order of their codes from 1 on; code 0 is a plain sum."""
        return tuple(dict.fromkeys(each.function for each in self.operations if each.function))

    def number(self, kind: str, phase: str, number: int = 0) -> int:
        """The code of a pass at the port ``program``; refuses a pass that the unit cannot run."""
        if (kind, phase, number) not in self.programs:
            known = ", ".join(f"{kind} {phase} {number}" for kind, phase, number in self.programs)
            raise RtlError(f"pass {kind} {phase} {number} is not one of {known}; use one of these")
        return list(self.programs).index((kind, phase, number))


def starts_lowest(program: tuple[Operation, ...]) -> bool:
    """Whether the first sum starts at -Inf, because the program seeks a maximum."""
    return any(each.function == "maximum" for each in program)
