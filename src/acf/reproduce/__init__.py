"""The published figures, row by row: `acf reproduce`.

A row is a function without arguments that returns a `Row`; each publication has its own files, and this dict lists
them all in the order they are printed.
"""

from collections.abc import Callable, Iterator, Sequence

from acf.errors import AcfError
from acf.reproduce import dts_rows, epoch_rows, sat_rows, spartann_rows, tensordash_cost, tensordash_speed
from acf.reproduce.row import Check, Row

__all__ = ["ROWS", "Check", "Row", "reproduce"]

ROWS: dict[str, Callable[[], Row]] = {
    "T1": tensordash_speed.t1,
    "T2": tensordash_cost.t2,
    "T3": tensordash_cost.t3,
    "T4": tensordash_cost.t4,
    "T5": tensordash_speed.t5,
    "T6": tensordash_speed.t6,
    "T7": tensordash_speed.t7,
    "T8": tensordash_speed.t8,
    "T9": tensordash_speed.t9,
    "T10": tensordash_speed.t10,
    "T11": tensordash_speed.t11,
    "T14": epoch_rows.t14,
    "T15": tensordash_cost.t15,
    "T16": tensordash_cost.t16,
    "T17": tensordash_cost.t17,
    "S1": dts_rows.s1,
    "S2": dts_rows.s2,
    "S3": dts_rows.s3,
    "S4": spartann_rows.s4,
    "S6": spartann_rows.s6,
    "S8": spartann_rows.s8,
    "S9": spartann_rows.s9,
    "S10": spartann_rows.s10,
    "S11": spartann_rows.s11,
    "S12": spartann_rows.s12,
    "S13": spartann_rows.s13,
    "S14": spartann_rows.s14,
    "B1": sat_rows.b1,
    "B2": sat_rows.b2,
    "B3": sat_rows.b3,
    "B4": sat_rows.b4,
    "B5": sat_rows.b5,
}
"""Every row that can be asked for, by its id."""


def reproduce(only: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """Id and row of all rows, or of those named in ``only``, as they are computed."""
    for name in only:
        if name not in ROWS:
            raise AcfError(f"row {name!r} is not known; use any of {', '.join(ROWS)}")
    for name, row in ROWS.items():
        if not only or name in only:
            yield name, row()
