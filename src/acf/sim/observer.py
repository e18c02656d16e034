"""What can be told about a step while it is simulated, without a part in the simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from acf.lowering.products import MatrixProducts
from acf.sim.accelerator import AcceleratorSpec
from acf.sim.memory import DramTraffic
from acf.sim.result import OpResult, Result
from acf.sim.whole_step import Placed


@dataclass(frozen=True)
class PlayedOp:
    """A traced operation that was played: its products and what came of it.

    ``traffic`` crosses the pins while one product runs. ``compute_cycles`` are those of all products, without the
    launch, without what DRAM adds at the end, and without what the operation before hides of the set-up.
    """

    products: MatrixProducts
    batched: bool
    traffic: DramTraffic
    compute_cycles: int
    result: OpResult


class StepObserver(Protocol):
    """Hears of a step: `begin` for each of its traces, `add_product` for each operation, `end` once."""

    def begin(self, spec: AcceleratorSpec, operations: int) -> None:
        """A trace of so many operations begins on ``spec``."""

    def add_product(self, played: PlayedOp) -> None:
        """An operation was played."""

    def end(self, result: Result, placed: Sequence[Placed]) -> None:
        """The step is complete; ``placed`` are its products and vector work in program order."""
