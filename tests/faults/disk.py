"""The faulty disk from the side of Python: build the library, start under it, choose the change that fails."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("faulty_disk.c")
LIBRARY = "ACF_FAULTY_DISK"


class Fault(IntEnum):
    """What happens at the chosen change of a folder."""

    NONE = 0
    FULL_FROM = 1
    FULL_ONCE = 2
    KILL = 3


def compiler() -> str | None:
    """The C compiler of this machine, None where there is none."""
    return shutil.which("cc") or shutil.which("gcc")


def load_faulty_disk() -> None:
    """Replace this process by itself with the library loaded before all others, unless it is."""
    if loaded := os.environ.pop(LIBRARY, ""):
        del os.environ["LD_PRELOAD"]  # what this process starts goes without
        shutil.rmtree(Path(loaded).parent)
        return
    command = compiler()
    if command is None:
        sys.exit("tests.faults: there is no C compiler on the path, and the faulty disk is written in C; install one")
    library = Path(tempfile.mkdtemp(prefix="acf-faulty-disk-")) / "faulty_disk.so"
    subprocess.run([command, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | one_thread | {"LD_PRELOAD": str(library), LIBRARY: str(library)}
    os.execve(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]], environment)


def arm(folder: Path, at: int, fault: Fault) -> None:
    """Let ``fault`` happen at the change number ``at`` of files in ``folder``, in this process and from now on."""
    ctypes.CDLL(None).faulty_disk_arm(os.fsencode(folder), ctypes.c_long(at), int(fault))


def changes() -> int:
    """Changes of files in the armed folder so far."""
    count = ctypes.CDLL(None).faulty_disk_changes
    count.restype = ctypes.c_long
    return int(count())
