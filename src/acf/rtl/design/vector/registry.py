"""The sets of programs that a vector unit can be built with."""

from acf.rtl.design.vector.program_set import ProgramSet
from acf.rtl.design.vector.programs import ALL_PROGRAMS, check_programs
from acf.rtl.design.vector.row_programs import ROW_PROGRAMS, STEPS_BETWEEN, check_row_programs

PROGRAM_SETS: dict[str, ProgramSet] = {
    "cnn": ProgramSet("cnn", ALL_PROGRAMS),
    "transformer": ProgramSet("transformer", ALL_PROGRAMS | ROW_PROGRAMS | STEPS_BETWEEN),
}
"""By name. Programs of the first set have the same numbers in the second."""


def program_number(kind: str, phase: str, number: int = 0) -> int:
    """The code of a pass at the port ``program`` of a unit with the programs of CNNs.

    >>> program_number("batch_norm", "forward", 1)
    1
    """
    return PROGRAM_SETS["cnn"].number(kind, phase, number)


def check_program_sets() -> None:
    """Refuse programs that take other cycles than the simulator charges."""
    check_programs()
    check_row_programs()
