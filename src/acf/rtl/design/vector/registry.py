"""The sets of programs that a vector unit can be built with."""

from acf.rtl.design.vector.adam_program import ADAM_PROGRAM
from acf.rtl.design.vector.program_set import ProgramSet
from acf.rtl.design.vector.programs import ALL_PROGRAMS, PROGRAMS, check_programs
from acf.rtl.design.vector.row_programs import ROW_PROGRAMS, STEPS_BETWEEN, check_row_programs

PROGRAM_SETS: dict[str, ProgramSet] = {
    "cnn": ProgramSet("cnn", ALL_PROGRAMS),
    "transformer": ProgramSet("transformer", ALL_PROGRAMS | ROW_PROGRAMS | STEPS_BETWEEN | ADAM_PROGRAM, has_rows=True),
}
"""By name. Programs of the first set have the same numbers in the second."""


def check_program_sets() -> None:
    """Refuse programs that take other cycles than the simulator charges."""
    check_programs(PROGRAMS | ADAM_PROGRAM)
    check_row_programs()
