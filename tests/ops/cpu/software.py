"""The native kernels with tile registers (AMX) on processors without them: tile instructions computed in software."""

import ctypes
import hashlib
import platform
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from acf.code_cache import code_directory, kept
from acf.ops.cpu import build
from acf.ops.cpu.call import INSTRUCTION_SETS

FOLDER = Path(__file__).parent
AMX = INSTRUCTION_SETS.index("amx")
TILE_FLAGS = ("-mamx-tile", "-mamx-bf16")


class TilesInSoftware:
    """In place of the library that `acf.ops.cpu.build.load_library` returns: bfloat16 in tiles, the rest as there."""

    def __init__(self, tiles: ctypes.CDLL, kernels: ctypes.CDLL) -> None:
        self._tiles, self._kernels = tiles, kernels

    def acf_best_instruction_set(self) -> int:
        return AMX

    def __getattr__(self, name: str) -> Callable[[bytes, int], int]:
        return partial(self._run, name)

    def _run(self, name: str, problem: bytes, instruction_set: int) -> int:
        (bfloat16,) = struct.unpack_from("q", problem)
        status: int
        if bfloat16 == 1 and instruction_set == AMX and not name.startswith("acf_mlp"):
            status = getattr(self._tiles, name)(problem, AMX)
        else:
            best = self._kernels.acf_best_instruction_set()
            status = getattr(self._kernels, name)(problem, min(best, instruction_set))
        return status


def compiled_in_software() -> TilesInSoftware:
    """The kernels compiled with functions in place of the intrinsics of AMX and AVX-512: for any x86-64.

    Working memory is NaN at the begin of each pass.
    """
    kernels = _kernels()
    isa = (flag for flag in build.X86_FLAGS["amx"] if not flag.startswith("-m"))
    return TilesInSoftware(_library(("tiles_in_software.cpp",), (*_common_flags(), "-O1", *isa)), kernels)


def trapped_in_software() -> TilesInSoftware:
    """The product's own library, whose tile instructions raise signals that are handled in software."""
    kernels = _kernels()
    if not torch.cpu._is_avx512_bf16_supported():
        pytest.skip("the rest of the machine code needs AVX512_BF16")
    if torch.cpu._is_amx_tile_supported():
        pytest.skip("the processor has tile registers, so nothing is trapped")
    trap_tiles()
    return TilesInSoftware(kernels, kernels)


@cache
def trap_tiles() -> ctypes.CDLL:
    """Handle tile instructions of this process from now on; the library with ``configure_tiles``, too."""
    flags = (*_common_flags(), "-O3", *build.X86_FLAGS["amx"])
    library = _library(("trapped_tiles.cpp", "tile_shapes.cpp"), flags)
    assert library.trap_tiles() == 0
    return library


def _kernels() -> ctypes.CDLL:
    """The product's library, if its compiler knows AMX."""
    if sys.platform != "linux" or platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("AMX belongs to x86-64, and its signals are handled as on Linux")
    if not _knows_tiles():
        pytest.skip("the compiler does not know AMX")
    kernels = build.load_library()
    assert kernels is not None
    return kernels


@cache
def _knows_tiles() -> bool:
    return _complaint(*TILE_FLAGS, "-fsyntax-only", "-x", "c++", "/dev/null") is None


def _common_flags() -> tuple[str, ...]:
    common = (flag for flag in build.COMMON_FLAGS if flag != "-O3")
    return (*common, "-fopenmp", "-DACF_ISA=amx", f"-I{build.NATIVE_DIRECTORY}", "-shared")


@cache
def _library(sources: tuple[str, ...], flags: tuple[str, ...]) -> ctypes.CDLL:
    """Built once per version of compiler, flags and sources, and loaded once per process."""
    digest = hashlib.sha256(repr((build.library_name(build.find_compiler()), sources, flags)).encode())
    for source in sorted((*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h"))):
        digest.update(source.read_bytes())

    def compiled(folder: Path) -> Path:
        library = folder / "library.so"
        complaint = _complaint(*flags, *(str(FOLDER / source) for source in sources), "-o", str(library))
        assert complaint is None, complaint
        return library

    return ctypes.CDLL(str(kept(code_directory() / f"tiles-in-software-{digest.hexdigest()[:24]}.so", compiled)))


def _complaint(*arguments: str) -> str | None:
    """What the compiler complains about; None where it succeeds."""
    command = [build.find_compiler().command, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr
