"""The first fields of records that hold several calls; a record of one call has them in its envelope."""

from datetime import date
from pathlib import Path

from acf.bench.machine import machine_name
from acf.records.provenance import command_line, commit_of


def provenance(device: str = "cpu") -> dict[str, str]:
    """``command``, ``date``, ``commit`` and ``machine`` of this call."""
    return {
        "command": command_line(),
        "date": date.today().isoformat(),
        "commit": commit_of(Path(__file__).parents[1]),
        "machine": machine_name(device),
    }
