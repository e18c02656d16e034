"""Connects torch's streams, events and pinned memory to the device, by a small C++ library built on first use.

torch's registration from Python has no streams, events or pinned memory. The library needs a C++ compiler; without one
everything else of the device works.
"""

import atexit
import ctypes
import hashlib
import subprocess
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from acf.code_cache import BUILD_SECONDS, build_remedy, code_directory, kept
from acf.ops.cpu.build import Compiler, KernelBuildError, find_compiler
from acf.torch_device.streams import ANSWERS

SOURCE = Path(__file__).parent / "native" / "streams.cpp"
FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-w", "-shared")
MESSAGE_BYTES = 1024
"""Room for the text of an error, as in the C++ source."""

_ANSWER: Any = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_double),
    ctypes.POINTER(ctypes.c_char * MESSAGE_BYTES),
)


class TorchDeviceWarning(UserWarning):
    """A part of ``torch.device("acf")`` is missing on this machine."""


@_ANSWER  # type: ignore[untyped-decorator]
def _answer(question: int, one: int, other: int, answer: Any, message: Any) -> int:
    """Called by C++, where no Python error may arrive: 0 with an answer, 1 with the text of the error."""
    try:
        answer[0] = float(ANSWERS[question](one, other))
    except Exception as error:
        text = f"{type(error).__name__}: {error}".encode()[: MESSAGE_BYTES - 1]
        ctypes.memmove(message, text + b"\0", len(text) + 1)
        return 1
    return 0


def connect_streams() -> bool:
    """Register guard and hooks in C++, in place of torch's in Python; False, after a warning, where it cannot be."""
    try:
        library = _load()
    except (KernelBuildError, OSError) as error:
        warnings.warn(
            f"acf: streams and events of torch are not connected to the device ({error}): torch.Stream and torch.Event "
            f"do nothing, torch.accelerator.synchronize() raises; {build_remedy(error)}; torch.acf.synchronize() waits "
            "for the device",
            TorchDeviceWarning,
            stacklevel=4,
        )
        return False
    library.acf_connect.restype = ctypes.c_bool
    if not library.acf_connect(_answer):
        return False
    atexit.register(library.acf_disconnect)
    return True


def _load() -> ctypes.CDLL:
    compiler = find_compiler()
    return ctypes.CDLL(str(kept(code_directory() / library_name(compiler), lambda folder: build(compiler, folder))))


def library_name(compiler: Compiler) -> str:
    """File name of the library that this source, these flags, this compiler and this torch make."""
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(repr((FLAGS, compiler, torch.__version__, torch.version.git_version)).encode())
    return f"torch-streams-{digest.hexdigest()[:24]}.so"


def build(compiler: Compiler, scratch: Path) -> Path:
    """Compile in the folder ``scratch``; the library."""
    built = scratch / "streams.so"
    paths = [f"-I{path}" for path in cpp_extension.include_paths()]
    paths += [f"-L{path}" for path in cpp_extension.library_paths()]
    command = [compiler.command, *FLAGS, *paths, str(SOURCE), "-o", str(built), "-lc10", "-ltorch_cpu"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise KernelBuildError(f"{compiler.command} has not ended after {BUILD_SECONDS} s") from error
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip() or "no message"
        raise KernelBuildError(f"{compiler.command} failed: {message.splitlines()[0]}")
    return built
