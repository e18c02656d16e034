"""Bandwidth of on-chip memory towards the tensor cores: banks read blocks of values, transposers turn groups."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from acf.lowering import Gemm


@dataclass(frozen=True)
class Supply:
    """Rates between on-chip memory and the scratchpads, in blocks of ``layout_values`` consecutive values.

    A block that is read serves ``sharing_cores``. Either operand has a memory of its own, which gives
    ``blocks_per_memory_cycle``; what is reduced across the layout is turned by transposers, which both operands share.
    """

    layout_values: int
    sharing_cores: int
    blocks_per_memory_cycle: int
    transposed_blocks_per_cycle: int

    def demand(self, gemm: Gemm, tile: tuple[int, int]) -> "Demand":
        """What one product asks for.

        ``tile`` is how many rows of the left and columns of the right operand a core takes at a time: every vector is
        read again for each tile of the other operand.
        """
        steps = ceil(gemm.k / self.layout_values)
        left = gemm.m * ceil(gemm.n / tile[1]) * steps / self.sharing_cores
        right = gemm.n * ceil(gemm.m / tile[0]) * steps / self.sharing_cores
        return Demand(left, right, left * gemm.transposed[0] + right * gemm.transposed[1])

    def waits(self, demands: Iterable["Demand"], compute_cycles: int) -> dict[str, int]:
        """Cycles beyond ``compute_cycles`` that products wait, by reason; empty where everything is hidden.

        Banks and transposers work side by side, so that transposers are charged only with what they take longer.
        """
        asked = list(demands)
        memories = (sum(each.left for each in asked), sum(each.right for each in asked))
        bank_cycles = ceil(max(memories) / self.blocks_per_memory_cycle)
        transposer_cycles = ceil(sum(each.transposed for each in asked) / self.transposed_blocks_per_cycle)
        fed = max(compute_cycles, bank_cycles)
        waits = {"on_chip_banks": fed - compute_cycles, "transposers": max(fed, transposer_cycles) - fed}
        return {reason: cycles for reason, cycles in waits.items() if cycles}


@dataclass(frozen=True)
class Demand:
    """Blocks that a product reads of its left and its right operand, and how many of them are transposed."""

    left: float
    right: float
    transposed: float
