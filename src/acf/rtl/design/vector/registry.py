"""The sets of programs that a vector unit can be built with."""

from acf.rtl.design.vector.adam_program import ADAM_PROGRAM
from acf.rtl.design.vector.pool_programs import POOL_PROGRAMS, POOL_STEPS, check_pool_programs
from acf.rtl.design.vector.program_set import ProgramSet
from acf.rtl.design.vector.programs import ALL_PROGRAMS, PROGRAMS, check_programs
from acf.rtl.design.vector.row_programs import ROW_PROGRAMS, STEPS_BETWEEN, check_row_programs

_CNN = ALL_PROGRAMS | POOL_PROGRAMS | POOL_STEPS

PROGRAM_SETS: dict[str, ProgramSet] = {
    "cnn": ProgramSet("cnn", _CNN),
    "transformer": ProgramSet("transformer", _CNN | ROW_PROGRAMS | STEPS_BETWEEN | ADAM_PROGRAM, has_rows=True),
}
"""By name, the smaller one first; its programs have the same numbers in the other."""


def check_program_sets() -> None:
    """Refuse programs that take other cycles than the simulator charges."""
    check_programs(PROGRAMS | ADAM_PROGRAM)
    check_row_programs()
    check_pool_programs()
