"""Where a record comes from: the command that made it, the date, the commit and the machine."""

import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

from acf.bench.machine import machine_name


def provenance(device: str = "cpu") -> dict[str, str]:
    """The first fields of every record: ``command``, ``date``, ``commit`` and ``machine``."""
    return {
        "command": shlex.join(["acf", *sys.argv[1:]]),
        "date": date.today().isoformat(),
        "commit": commit_of(Path(__file__).parent),
        "machine": machine_name(device),
    }


def commit_of(folder: Path) -> str:
    """The commit that ``folder`` is checked out at, with "+" where tracked files differ; "" outside a checkout."""
    try:
        done = subprocess.run(
            ("git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
