"""Verilator's lint over emitted Verilog, and the warnings that are waived, each with the reason."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from acf.rtl.tools.verilator import Verilator

WAIVED_WARNINGS: dict[str, str] = {
    "CASEOVERLAP": "multiplexers are written as casez over select bits of which at most one is set",
    "DECLFILENAME": "all modules stand in one file, so a file cannot be named like each of them",
    "PROCASSINIT": "registers have initial values for FPGAs and are reset by `rst` too",
    "UNUSEDSIGNAL": "the carry bit of an addition that cannot overflow is computed and dropped",
    "WIDTHEXPAND": "the shorter operand of an operator is extended, as Verilog defines and as Amaranth meant it",
    "WIDTHTRUNC": "`!` of a vector asks whether it is zero",
}
"""Kinds of warnings that `acf rtl emit` may show, and why they stay; anything else is a defect."""

_WARNING = re.compile(r"^%(?:Warning-(\w+)|Error[^:]*): ([^\n]*)", re.M)


@dataclass(frozen=True)
class LintWarning:
    """A kind of warning ("ERROR" for an error) and Verilator's text."""

    kind: str
    text: str


def lint(verilog: str, verilator: Verilator) -> list[LintWarning]:
    """What Verilator's full lint says about ``verilog``, waived kinds left out."""
    with tempfile.TemporaryDirectory(prefix="acf-lint-") as folder:
        Path(folder, "top.v").write_text(verilog, encoding="utf-8")
        waivers = [f"-Wno-{kind}" for kind in WAIVED_WARNINGS]
        done = subprocess.run(
            [verilator.command, "--lint-only", "-Wall", *waivers, "top.v"],
            cwd=folder,
            env=verilator.environment(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    found = [LintWarning(match[1] or "ERROR", match[2]) for match in _WARNING.finditer(done.stderr)]
    return [each for each in found if not each.text.startswith("Exiting due to")]
