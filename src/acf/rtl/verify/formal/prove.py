"""Proving that an output is always 1, with the SAT solver inside Yosys (MiniSat, MIT licence)."""

import re
from dataclasses import dataclass
from typing import Any

from acf.rtl.tools.verilog import to_rtlil
from acf.rtl.tools.yosys import run_yosys

_PREPARE = ["read_rtlil top.il", "hierarchy -top top", "proc", "flatten", "memory_map", "opt -full", "clean"]


@dataclass(frozen=True)
class Proof:
    """Whether a property holds; "all inputs", "all reachable states" (by induction) or the cycles that were tried.

    ``counterexample`` is the solver's table of signals where it does not.
    """

    holds: bool
    scope: str
    counterexample: str = ""


def prove_always(component: Any) -> Proof:
    """Prove of a component without registers that ``holds`` is 1 for all inputs."""
    return _proof(component, "sat -prove holds 1 -show-all", "all inputs")


def prove_within(component: Any, cycles: int) -> Proof:
    """Prove that ``holds`` is 1 in the first ``cycles`` cycles after reset, for all inputs."""
    command = f"sat -tempinduct-baseonly -maxsteps {cycles} -seq 0 -prove holds 1 -set rst 0 -show-inputs"
    return _proof(component, command, f"{cycles} cycles from reset")


def prove_by_induction(component: Any, steps: int = 4) -> Proof:
    """Prove that ``holds`` is 1 in all cycles: from reset, and after any ``steps`` cycles in which it was 1."""
    command = f"sat -tempinduct -maxsteps {steps} -seq 0 -prove holds 1 -set rst 0 -show-inputs"
    return _proof(component, command, "all reachable states")


def _proof(component: Any, command: str, scope: str) -> Proof:
    log = run_yosys([*_PREPARE, command], {"top.il": to_rtlil(component, "top")}).log
    solved = log[log.rfind("Executing SAT pass") :]
    if "SUCCESS!" in solved or re.search(r"Reached maximum number of time steps -> proved base case", solved):
        return Proof(True, scope)
    table = re.search(r"^\s*Time Signal Name.*|^\s*Signal Name.*", solved, re.M)
    return Proof(False, scope, solved[table.start() :].strip() if table else solved.strip()[-2000:])
