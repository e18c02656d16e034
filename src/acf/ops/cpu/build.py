"""Builds the native CPU kernels with the system's compiler on first use, and keeps them in a cache.

The file name holds a hash of source, flags and compiler, so a change of any of them builds anew.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from acf.code_cache import BUILD_SECONDS, build_remedy, code_directory, kept

NATIVE_DIRECTORY = Path(__file__).parents[1] / "native"
COMMON_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fno-math-errno", "-fvisibility=hidden", "-w")
AVX512_FLAGS = (
    "-DACF_ISA_AVX512",
    *("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma", "-mprefer-vector-width=512"),
)
AVX512BF16_FLAGS = (*AVX512_FLAGS, "-DACF_ISA_AVX512BF16", "-mavx512bf16")
X86_FLAGS = {
    "portable": (),
    "avx2": ("-DACF_ISA_AVX2", "-mavx2", "-mfma"),
    "avx512": AVX512_FLAGS,
    "avx512bf16": AVX512BF16_FLAGS,
    "amx": (*AVX512BF16_FLAGS, "-DACF_ISA_AMX", "-mamx-tile", "-mamx-bf16"),
}
OPTIONAL_INSTRUCTION_SETS = ("avx512bf16", "amx")
"""Younger than compilers in use: g++ 10 and clang++ 9 know the first, g++ 11 and clang++ 12 both."""

ANSWER_SECONDS = 30
"""A compiler that does not say its version in this time is none."""


class CpuKernelWarning(UserWarning):
    """The native CPU kernels could not be built, so sparse layers run at the speed of dense ones."""


class KernelBuildError(Exception):
    """The compiler is missing or refused the source; the text says which."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command and what it says about itself."""

    command: str
    version: str


def find_compiler() -> Compiler:
    """The first of ``$CXX``, ``c++``, ``g++`` and ``clang++`` that runs."""
    for command in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        path = shutil.which(command) if command else None
        if path is None:
            continue
        try:
            answer = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=ANSWER_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0:
            return Compiler(path, answer.stdout.decode(errors="replace"))
    raise KernelBuildError("no C++ compiler found ($CXX, c++, g++, clang++)")


def library_name(compiler: Compiler) -> str:
    """File name of the library this source, these flags and this compiler make."""
    digest = hashlib.sha256()
    for source in sorted(NATIVE_DIRECTORY.iterdir()):
        if source.suffix in (".cpp", ".h"):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    digest.update(repr((COMMON_FLAGS, _instruction_set_flags(), platform.machine(), compiler)).encode())
    return f"cpu-kernels-{digest.hexdigest()[:24]}.so"


def build(compiler: Compiler, scratch: Path) -> Path:
    """Compile in the folder ``scratch``; the library."""
    try:
        return _compile(compiler, scratch, ("-fopenmp",))
    except KernelBuildError:
        return _compile(compiler, scratch, ())  # a compiler without OpenMP: one thread


_lock = Lock()
_loaded: list[ctypes.CDLL | None] = []


def load_library() -> ctypes.CDLL | None:
    """The kernels, built if need be; None, after one warning, where they cannot be built."""
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load_or_warn())
    return _loaded[0]


def _load_or_warn() -> ctypes.CDLL | None:
    try:
        return _load()
    except (KernelBuildError, OSError) as error:
        warnings.warn(
            f"acf: native CPU kernels are off ({error}), sparse layers run as dense torch; {build_remedy(error)}",
            CpuKernelWarning,
            stacklevel=2,
        )
        return None


def _load() -> ctypes.CDLL:
    compiler = find_compiler()
    return ctypes.CDLL(str(kept(code_directory() / library_name(compiler), lambda folder: build(compiler, folder))))


def _instruction_set_flags() -> dict[str, tuple[str, ...]]:
    """Flags of each object made from ``passes.cpp``, by instruction set."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return X86_FLAGS if is_x86 else {"portable": ()}


def _compile(compiler: Compiler, scratch: Path, openmp: tuple[str, ...]) -> Path:
    """Compile every object at the same time and link them; OpenMP is the runtime torch has already loaded."""
    objects = {name: str(scratch / f"passes_{name}.o") for name in _instruction_set_flags()}
    source = str(NATIVE_DIRECTORY / "passes.cpp")
    running = {
        name: _start(compiler, [*COMMON_FLAGS, *openmp, *flags, f"-DACF_ISA={name}", "-c", source, "-o", objects[name]])
        for name, flags in _instruction_set_flags().items()
    }
    failures = {name: message for name, process in running.items() if (message := _failure(process)) is not None}
    for name, message in failures.items():
        if name not in OPTIONAL_INSTRUCTION_SETS:
            raise KernelBuildError(f"{compiler.command} failed: {message}")
        del objects[name]
    dispatch, library = scratch / "dispatch.o", scratch / "library.so"
    built = [f"-DACF_HAS_{name}" for name in objects]
    source = str(NATIVE_DIRECTORY / "dispatch.cpp")
    for arguments in (
        [*COMMON_FLAGS, *built, "-c", source, "-o", str(dispatch)],
        ["-shared", *openmp, *objects.values(), str(dispatch), "-o", str(library)],
    ):
        message = _failure(_start(compiler, arguments))
        if message is not None:
            raise KernelBuildError(f"{compiler.command} failed: {message}")
    return library


def _start(compiler: Compiler, arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([compiler.command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _failure(process: subprocess.Popen[bytes]) -> str | None:
    """The first line of the compiler's complaint, once it has ended; None where it has none."""
    try:
        message = process.communicate(timeout=BUILD_SECONDS)[1].decode(errors="replace").strip()
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"no end after {BUILD_SECONDS} s"
    return None if process.returncode == 0 else (message or "no message").splitlines()[0]
