"""Verilog as a program in which cocotb drives the ports of its top module."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from acf.code_cache import kept
from acf.errors import RtlError
from acf.extras import import_optional, install_line, require
from acf.rtl.tools.verilator import FLAGS, RUNTIME_SOURCES, compile_program, find_verilator, model_folder

FIRST_VERILATOR = (5, 36)
VPI_SOURCES = ("verilated_vpi.cpp",)
_PUBLIC = '`verilator_config\npublic_flat_rw -module "{top}" -var "*"\n'


class CocotbUnavailableError(RtlError):
    """cocotb cannot work with this Verilator or this Python; the text says which."""


def build(verilog: str, top: str) -> Path:
    """The program made of ``verilog``, built unless the cache has it."""
    require("cocotb", needed_by="the test of the buses")
    import cocotb_tools.config

    check_verilator(find_verilator().version)
    _python_library()
    libraries = Path(cocotb_tools.config.libs_dir)
    main = Path(cocotb_tools.config.share_dir) / "lib" / "verilator" / "verilator.cpp"
    key = repr((verilog, top, FLAGS, find_verilator().version, main.read_text(encoding="utf-8"), str(libraries)))

    def build_program(folder: Path) -> Path:
        (folder / "top.v").write_text(verilog, encoding="utf-8")
        (folder / "public.vlt").write_text(_PUBLIC.format(top=top), encoding="utf-8")
        return compile_program(
            folder,
            ["public.vlt", "top.v"],
            top,
            main,
            runtime=(*RUNTIME_SOURCES, *VPI_SOURCES),
            link=[f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lcocotbvpi_verilator"],
        )

    with model_folder() as folder:
        return kept(folder / f"cocotb-{hashlib.sha256(key.encode()).hexdigest()[:24]}", build_program)


def run(program: Path, top: str, module: str, folder: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """Run the tests of a Python ``module`` and give their names; raises `RtlError` with those that failed.

    Results and log are written to ``folder``.
    """
    require("cocotb", needed_by="the test of the buses")
    import cocotb_tools.config

    results = folder / "results.xml"
    settings = {
        "COCOTB_TOPLEVEL": top,
        "COCOTB_TEST_MODULES": module,
        "COCOTB_RESULTS_FILE": str(results),
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "COCOTB_LOG_LEVEL": "WARNING",
        # By default pytest would recompile all that the module imports, torch included, to rewrite assertions.
        "COCOTB_REWRITE_ASSERTION_FILES": f"{module.rpartition('.')[2]}.py",
        "TOPLEVEL_LANG": "verilog",
        "PYGPI_PYTHON_BIN": sys.executable,
        "GPI_USERS": ";".join((_python_library(), cocotb_tools.config.pygpi_entry_point())),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [str(program)],
        cwd=folder,
        env=os.environ | settings | dict(environment or {}),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    (folder / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    if not results.exists():
        last = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise RtlError(f"the simulation ended without results: {last[-1]}; see {folder / 'log.txt'}")
    cases = _cases(results)
    failed = [name for name, passed in cases.items() if not passed]
    if failed:
        raise RtlError(f"{len(failed)} of the tests in {module} failed: {', '.join(failed)}; see {folder / 'log.txt'}")
    return list(cases)


def check_verilator(version: str) -> None:
    """Refuse a Verilator that names a version before the first that cocotb 2.1 can be built with."""
    named = re.search(r"Verilator (\d+)\.(\d+)", version)
    if named and (int(named[1]), int(named[2])) < FIRST_VERILATOR:
        raise CocotbUnavailableError(
            f"cocotb needs Verilator {FIRST_VERILATOR[0]}.{FIRST_VERILATOR[1]:03}, and this is {named[1]}.{named[2]}; "
            f"install a newer one, for example with: {install_line('rtl')}"
        )


def _python_library() -> str:
    """The shared library of this Python, which the program loads."""
    found = import_optional("find_libpython", needed_by="the test of the buses").find_libpython()
    if found is None:
        raise CocotbUnavailableError("this Python has no shared library, which cocotb needs; use a Python that has one")
    return str(found)


def _cases(results: Path) -> dict[str, bool]:
    """Every test by name, and whether it passed."""
    from xml.etree import ElementTree

    cases = ElementTree.parse(results).getroot().iter("testcase")
    return {str(case.get("name")): all(case.find(kind) is None for kind in ("failure", "error")) for case in cases}
