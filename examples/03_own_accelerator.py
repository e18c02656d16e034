"""An accelerator of one's own, outside the package: a machine that skips groups of zeros in one operand.

    python examples/03_own_accelerator.py

A Spec says how many MACs it has and counts the cycles of one matrix product. Everything else, from the trace to the
report, comes with `acf.simulate`.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import nn

import acf
from acf.lowering import Gemm
from acf.sim.accelerator import AcceleratorSpec, ComputeCount

MAC_J = 2.9e-12
"""Joules of a multiply-accumulate at 65 nm, as `acf.cost.MAC_65NM_PJ` derives it."""


@dataclass(frozen=True, kw_only=True)
class GroupSkipper(AcceleratorSpec):
    """``lanes`` MACs that take ``group`` values of the reduction at a time, and skip a group that is all zero in b."""

    lanes: int = 512
    group: int = 16
    clock_hz: float = 250e6
    technology_nm: int = 65
    value_bytes: int = 2
    on_chip_bytes: int = 32 << 20
    dram_kind: str = "ddr"
    dram_pin_bytes_per_s: float = 76.8e9
    dram_sustained_share: float = 0.862

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle."""
        return self.lanes

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions that belong beside every figure."""
        return (f"Skips groups of {self.group} zeros in the second operand; control and edges are free.",)

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles of ``a [m, k] @ b [k, n]``: every present group of a column of b meets every row of a."""
        padded = np.zeros((ceil(gemm.k / self.group) * self.group, gemm.n), dtype=bool)
        padded[: gemm.k] = gemm.b
        present = int(padded.reshape(-1, self.group, gemm.n).any(axis=1).sum())
        cycles = ceil(present * self.group * gemm.m / self.lanes)
        effectual = gemm.effectual_macs()
        lost = {"ineffectual": cycles * self.lanes - effectual}
        return ComputeCount(cycles, gemm.dense_macs, effectual, lost, {"compute": cycles * self.lanes * MAC_J})


def main() -> None:
    """A sparse step on the machine, and on two of the package's with the same peak."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.75, block=16))
    x = torch.randn(128, 256)
    with acf.capture(model) as trace:
        (model(x) - x).square().mean().backward()
    dense = acf.simulate(trace, "tensorcore-512")
    for machine in ("tensorcore-512", GroupSkipper(name="group skipper"), "acf-512"):
        result = acf.simulate(trace, machine)
        print(
            f"{result.architecture:15} {result.cycles:8,} cycles, {result.speedup_over(dense):.2f}x, "
            f"U {result.utilization:.0%}, {result.energy_j * 1e6:.0f} uJ"
        )


if __name__ == "__main__":
    main()
