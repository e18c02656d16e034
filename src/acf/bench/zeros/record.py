"""The record of measured zeros: one JSON file for several networks, each with the command that made it."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acf.bench.provenance import provenance
from acf.bench.zeros.measure import MeasuredZeros, ZerosSpec
from acf.errors import DataError
from acf.files import is_stream
from acf.records import data_of, parse_json, read_value, write_record


def zeros_record(spec: ZerosSpec, measured: Sequence[MeasuredZeros]) -> dict[str, Any]:
    """The record of one network, under its name."""
    return {spec.model: provenance() | {"spec": asdict(spec), "variants": [each.to_dict() for each in measured]}}


def add_to_record(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Write ``record`` to ``path`` beside the networks that the file has already, and return all of them."""
    before: dict[str, Any] = {}
    if path.exists() and not is_stream(path):
        try:
            kept = data_of(parse_json(path.read_text(encoding="utf-8")))
            before = read_value(dict[str, dict[str, Any]], kept, "record")
        except (OSError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{path} is no record of zeros ({reason}); name one of `acf bench zeros`, or a new file"
            ) from None
    merged = dict(sorted((before | record).items()))
    write_record(path, "zeros", merged)
    return merged
