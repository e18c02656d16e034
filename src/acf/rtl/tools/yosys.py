"""Yosys as a process of its own: its errors end that process, and its libraries stay out of this one."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from acf.errors import RtlError
from acf.extras import require

_RUN = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.stdin.read().splitlines():
    libyosys.run_pass(command, design)
"""


@dataclass(frozen=True)
class YosysRun:
    """What Yosys printed and the files that it wrote, by name."""

    log: str
    files: Mapping[str, str]


def run_yosys(
    commands: Sequence[str], inputs: Mapping[str, str], outputs: Sequence[str] = (), timeout_s: float = 7200.0
) -> YosysRun:
    """Run ``commands`` in a folder that holds ``inputs``; ``outputs`` are read from it afterwards.

    Raises `RtlError` with Yosys' own line where a command fails.
    """
    require("pyosys", needed_by="the RTL flow")
    with tempfile.TemporaryDirectory(prefix="acf-yosys-") as folder:
        for name, text in inputs.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-c", _RUN],
                input="\n".join(commands),
                cwd=folder,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise RtlError(
                f"yosys has not ended after {timeout_s:g} s; take a smaller design, or one module of it"
            ) from error
        if done.returncode != 0:
            raise RtlError(
                f"yosys refused the design: {_reason(done.stdout + done.stderr)}; check the input named there"
            )
        return YosysRun(done.stdout, {name: Path(folder, name).read_text(encoding="utf-8") for name in outputs})


def _reason(log: str) -> str:
    """The line with the error, without the word."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    named = [line for line in lines if "ERROR" in line]
    return (named or lines or ["no message"])[-1].removeprefix("ERROR:").strip().rstrip(".")
