"""The record of one training run, as a report shows it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acf.errors import ReportError
from acf.schema import Diverged, read_as


@dataclass(frozen=True)
class MaskSnapshot:
    """The blocks of one layer that were present after ``step``.

    ``packed`` holds the ``rows`` x ``columns`` grid of blocks in C order, eight to a byte, as hexadecimal digits.
    """

    step: int
    layer: str
    rows: int
    columns: int
    packed: str

    def __post_init__(self) -> None:
        expected = 2 * ((self.rows * self.columns + 7) // 8)
        if self.rows < 1 or self.columns < 1 or len(self.packed) != expected:
            raise ReportError(
                f"mask of {self.layer!r}: {self.rows} x {self.columns} blocks need {expected} hexadecimal digits and "
                f"not {len(self.packed)}; make it with MaskSnapshot.of"
            )
        if set(self.packed) - set("0123456789abcdef"):
            raise ReportError(f"mask of {self.layer!r} is not hexadecimal digits; make it with MaskSnapshot.of")

    @classmethod
    def of(cls, step: int, layer: str, present: ArrayLike) -> "MaskSnapshot":
        """The snapshot of a boolean matrix with one element for each block.

        >>> MaskSnapshot.of(10, "fc", [[True, False], [True, True]]).packed
        'b0'
        """
        grid = np.asarray(present, dtype=bool)
        rows, columns = grid.shape
        return cls(step, layer, rows, columns, np.packbits(grid.reshape(-1)).tobytes().hex())

    @property
    def present(self) -> NDArray[np.bool_]:
        """The boolean matrix again."""
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(self.packed), dtype=np.uint8))
        return bits[: self.rows * self.columns].astype(bool).reshape(self.rows, self.columns)


@dataclass(frozen=True)
class TrainingRecord:
    """One finished run: final test accuracy and weight sparsity in [0, 1], and curves by step.

    ``losses[i]`` is the training loss of step ``i + 1``; ``test_accuracies`` are ``(step, accuracy)`` pairs;
    ``moved_blocks`` are ``(step, blocks that moved)`` pairs; ``seconds`` is wall-clock time. ``test_seconds`` and
    ``test_joules`` are time and energy of the training up to each entry of ``test_accuracies``, empty where they were
    not measured. ``masks`` are the blocks of layers at some steps.
    """

    label: str
    test_accuracy: float
    weight_sparsity: float
    losses: tuple[Diverged, ...]
    test_accuracies: tuple[tuple[int, float], ...]
    moved_blocks: tuple[tuple[int, int], ...]
    seconds: float
    test_seconds: tuple[float, ...] = ()
    test_joules: tuple[float, ...] = ()
    masks: tuple[MaskSnapshot, ...] = ()

    def __post_init__(self) -> None:
        for name in ("test_accuracy", "weight_sparsity"):
            if not 0 <= getattr(self, name) <= 1:
                raise ReportError(f"run {self.label!r}: {name} {getattr(self, name)} is no share; give one in [0, 1]")
        for name in ("test_seconds", "test_joules"):
            found = len(getattr(self, name))
            if found not in (0, len(self.test_accuracies)):
                raise ReportError(
                    f"run {self.label!r}: {found} {name} for {len(self.test_accuracies)} test_accuracies; "
                    "give one for each, or none"
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which `from_dict` reads back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainingRecord":
        """The record that `to_dict` wrote."""
        try:
            return read_as(cls, values)
        except ValueError as error:
            raise ReportError(
                f"this is no record of a training run ({error}); pass a file that `acf demo --json` wrote"
            ) from error
