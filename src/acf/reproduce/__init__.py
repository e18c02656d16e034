"""The published figures, row by row: `acf reproduce`.

T: TensorDash; S: SparTANN and Dynamic Threshold Scaling; B: BDWP and SAT; U: the proposal of the fabric itself. A row
is a function without arguments that returns a `Row`; files are named after the publication, and `ROWS` lists every row
in the order of printing.
"""

from collections.abc import Callable, Iterator, Sequence

from acf.errors import AcfError
from acf.reproduce import (
    fabric,
    sat,
    spartann,
    spartann_thresholds,
    tensordash_energy,
    tensordash_epochs,
    tensordash_speedup,
)
from acf.reproduce.row import Check, Row

__all__ = ["ROWS", "Check", "Row", "reproduce"]

ROWS: dict[str, Callable[[], Row]] = {
    "T1": tensordash_speedup.t1,
    "T2": tensordash_energy.t2,
    "T3": tensordash_energy.t3,
    "T4": tensordash_energy.t4,
    "T5": tensordash_speedup.t5,
    "T6": tensordash_speedup.t6,
    "T7": tensordash_speedup.t7,
    "T8": tensordash_speedup.t8,
    "T9": tensordash_speedup.t9,
    "T10": tensordash_speedup.t10,
    "T11": tensordash_speedup.t11,
    "T12": tensordash_epochs.t12,
    "T14": tensordash_epochs.t14,
    "T15": tensordash_energy.t15,
    "T16": tensordash_energy.t16,
    "T17": tensordash_energy.t17,
    "S1": spartann_thresholds.s1,
    "S2": spartann_thresholds.s2,
    "S3": spartann_thresholds.s3,
    "S4": spartann.s4,
    "S6": spartann.s6,
    "S8": spartann.s8,
    "S9": spartann.s9,
    "S10": spartann.s10,
    "S11": spartann.s11,
    "S12": spartann.s12,
    "S13": spartann.s13,
    "S14": spartann.s14,
    "B1": sat.b1,
    "B2": sat.b2,
    "B3": sat.b3,
    "B4": sat.b4,
    "B5": sat.b5,
    "U1": fabric.u1,
    "U2": fabric.u2,
    "U3": fabric.u3,
    "U4": fabric.u4,
}
"""Every row by its id."""


def reproduce(only: Sequence[str] = ()) -> Iterator[tuple[str, Row]]:
    """Compute all rows, or those named in ``only``, and yield each with its id."""
    for name in only:
        if name not in ROWS:
            raise AcfError(f"row {name!r} is not known; use any of {', '.join(ROWS)}")
    for name, row in ROWS.items():
        if not only or name in only:
            yield name, row()
