"""Where a record comes from: the command, the commit and the machine. Needs no torch."""

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def command_line() -> str:
    """The command that runs now, as a shell would take it."""
    return shlex.join(["acf", *sys.argv[1:]])


def commit_of(folder: Path) -> str:
    """The commit that ``folder`` is checked out at, with "+" where tracked files differ; "" outside a checkout.

    A folder that a repository holds but does not track, such as a virtual environment in another project, has none.
    """
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    return _git(folder, "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*") if tracked else ""


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; "" where it fails or is not there."""
    try:
        done = subprocess.run(("git", *arguments), cwd=folder, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> str:
    """Processor, cores and torch; and the GPU, where this process has used one."""
    parts = [f"{processor_name()}, {os.cpu_count()} cores", *_gpu()]
    try:
        parts.append(f"torch {version('torch')}")
    except PackageNotFoundError:
        parts.append("no torch")
    return ", ".join(parts)


def _gpu() -> list[str]:
    torch = sys.modules.get("torch")
    return [torch.cuda.get_device_name()] if torch is not None and torch.cuda.is_initialized() else []


def processor_name() -> str:
    """The processor as Linux calls it, or the machine's architecture elsewhere."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"{platform.machine()} CPU"
