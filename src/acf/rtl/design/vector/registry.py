"""The sets of programs that a vector unit can be built with."""

from acf.rtl.design.vector.program_set import ProgramSet
from acf.rtl.design.vector.programs import ALL_PROGRAMS, check_programs
from acf.rtl.design.vector.row_programs import ROW_PROGRAMS, STEPS_BETWEEN, check_row_programs

PROGRAM_SETS: dict[str, ProgramSet] = {
    "cnn": ProgramSet("cnn", ALL_PROGRAMS),
    "transformer": ProgramSet("transformer", ALL_PROGRAMS | ROW_PROGRAMS | STEPS_BETWEEN, has_rows=True),
}
"""By name. Programs of the first set have the same numbers in the second."""


def check_program_sets() -> None:
    """Refuse programs that take other cycles than the simulator charges."""
    check_programs()
    check_row_programs()
