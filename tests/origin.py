"""Where the record of a campaign comes from: command, date, commit and machine."""

from datetime import UTC, datetime
from pathlib import Path

from acf.records.provenance import commit_of, machine


def origin(command: str) -> dict[str, str]:
    """The first fields of a record that stands beside the results."""
    source = Path(__file__).parents[1] / "src" / "acf"
    today = datetime.now(UTC).date().isoformat()
    return {"command": command, "date": today, "commit": commit_of(source), "machine": machine()}
