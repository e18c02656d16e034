"""The one shape of JSON that every command writes and `acf report` reads.

A record is an object: ``kind`` (one of `KINDS`), ``schema``, ``command``, ``acf`` (the version), ``commit``, ``date``,
``machine``, and ``data``, the figures themselves. `acf.records.write` writes it, `acf.records.read` reads it.
"""

from acf.records.kinds import KINDS, SCHEMA, Kind
from acf.records.read import Record, data_of, parse_json, parse_record, read_record, values_of
from acf.records.write import envelope, record_text, write_record
from acf.schema import Diverged, read_as, read_value

__all__ = [
    "KINDS",
    "SCHEMA",
    "Diverged",
    "Kind",
    "Record",
    "data_of",
    "envelope",
    "parse_json",
    "parse_record",
    "read_as",
    "read_record",
    "read_value",
    "record_text",
    "values_of",
    "write_record",
]
