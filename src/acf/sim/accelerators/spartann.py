"""SparTANN: non-zero gradients one by one, input channels side by side (Sim et al., ISLPED 2020)."""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from acf.cost.spartann import SPARTANN_CLOCK_HZ, SPARTANN_MACS, area_mm2, on_chip_power_w, skipping_power_w
from acf.errors import ArchitectureError
from acf.lowering import Gemm
from acf.sim.accelerator import AcceleratorSpec, ComputeCount
from acf.sparse.relative_csc import MAXIMUM_INDEX_BITS, count_entries


@dataclass(frozen=True, kw_only=True)
class SparTANN(AcceleratorSpec):
    """``macs`` (the paper's T) that add a scalar times a vector of input channels to a vector, one per cycle.

    The output gradient is stored as compressed columns over output channels with ``index_bits`` wide relative
    indices; each entry, padding included, takes a cycle for every ``macs`` input channels and kernel tap. Weights and
    activations are dense, and so is the forward pass. Dense buffer B holds ``macs`` words for as many output channels
    as fit; longer columns are cut there. ``skips_zeros=False`` is the dense machine the paper compares with.
    """

    kind: ClassVar[str] = "spartann"

    macs: int
    skips_zeros: bool
    index_bits: int
    sparse_buffer_bytes: int
    index_buffer_bytes: int
    dense_buffer_a_bytes: int
    dense_buffer_b_bytes: int
    output_buffer_bytes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_65nm()
        self._check_figures()
        self._check_buffers()

    def _check_figures(self) -> None:
        if self.value_bytes not in SPARTANN_MACS:
            raise ArchitectureError(
                f"value_bytes {self.value_bytes}: SparTANN's power is published for 4 (fp32) and 2 (bf16) only; use one"
            )
        if self.index_bits > MAXIMUM_INDEX_BITS:
            raise ArchitectureError(
                f"index_bits {self.index_bits} is above {MAXIMUM_INDEX_BITS}; use at most that many bits"
            )

    def _check_buffers(self) -> None:
        vector_bytes = self.macs * self.value_bytes
        for name in ("dense_buffer_b_bytes", "output_buffer_bytes"):
            if getattr(self, name) < vector_bytes:
                raise ArchitectureError(
                    f"{name} {getattr(self, name)} holds no vector of {self.macs} values of {self.value_bytes} bytes; "
                    f"use at least {vector_bytes}"
                )
        buffers = (
            self.sparse_buffer_bytes
            + self.index_buffer_bytes
            + self.dense_buffer_a_bytes
            + self.dense_buffer_b_bytes
            + self.output_buffer_bytes
        )
        if self.on_chip_bytes != buffers:
            raise ArchitectureError(
                f"on_chip_bytes {self.on_chip_bytes} is not the {buffers} bytes of the five buffers; make them equal"
            )

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulate slots in one clock cycle."""
        return self.macs

    @property
    def column_rows(self) -> int:
        """Output channels that dense buffer B holds a vector for, the longest column."""
        return self.dense_buffer_b_bytes // (self.macs * self.value_bytes)

    @property
    def area_mm2(self) -> dict[str, float]:
        """Square millimetres by component; MACs in proportion to their number, the rest as published."""
        published = area_mm2(self.value_bytes)
        return published | {"mac": published["mac"] * self.macs / SPARTANN_MACS[self.value_bytes]}

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong beside every figure."""
        return (
            f"{self.macs} MACs at {self.clock_hz / 1e6:.0f} MHz, {self.technology_nm} nm; "
            + ("skips zero output gradients; the forward pass is dense." if self.skips_zeros else "skips nothing."),
            f"Assumed: DRAM delivers {self.dram_sustained_bytes_per_s / 1e9:.1f} GB/s; the forward pass takes output "
            "channels side by side and costs the power of the input gradient; loops run over tiles of input channels, "
            "then positions (weight gradient: taps), then taps (positions).",
            "Not counted: the sparsifier's latency, normalisation, activation, weight update.",
        )

    def count(self, gemm: Gemm) -> ComputeCount:
        """Cycles, slots and compute energy of one matrix product."""
        repeats = gemm.taps if gemm.phase == "weight_grad" else 1  # each tap's channels end in an edge of their own
        vectors = repeats * ceil(gemm.n // repeats / self.macs)
        dense = gemm.m * gemm.k
        if self._skips(gemm):
            values, entries = int(gemm.a.sum()), self._entries(gradient_columns(gemm))
        else:
            values, entries = dense, dense
        cycles, effectual = entries * vectors, gemm.effectual_macs()
        return ComputeCount(
            cycles=cycles,
            dense_macs=gemm.dense_macs,
            effectual_macs=effectual,
            lost_slots={
                "ineffectual": values * gemm.n - effectual,
                "padding": (entries - values) * gemm.n,
                "edge": entries * (vectors * self.macs - gemm.n),
            },
            energy_j=self._energy_j(cycles, gemm.phase),
            streamed_bytes=self._streamed_bytes(gemm, entries, vectors),
        )

    def _entries(self, columns: NDArray[np.bool_]) -> int:
        """Stored entries of gradient columns, cut where buffer B ends."""
        cuts = range(0, columns.shape[1], self.column_rows)
        return sum(count_entries(columns[:, first : first + self.column_rows], self.index_bits) for first in cuts)

    def _energy_j(self, cycles: int, phase: str) -> dict[str, float]:
        """Joules by component; the dense machine has neither index buffer nor sparsifier."""
        watts = on_chip_power_w(phase, self.value_bytes)
        if not self.skips_zeros:
            watts["control"] -= skipping_power_w(phase, self.value_bytes)
        scale = self.macs / SPARTANN_MACS[self.value_bytes]
        return {name: power * scale * cycles / SPARTANN_CLOCK_HZ for name, power in watts.items()}

    @property
    def keeps_tensors(self) -> bool:
        """False: buffers hold tiles, and tensors are read again for every tile."""
        return False

    def _streamed_bytes(self, gemm: Gemm, entries: int, vectors: int) -> int:
        """Bytes to and from DRAM: every entry streams by for every vector, dense buffer B is filled once per tile.

        Forward and input gradient: weights return for every tile of positions that the output buffer holds, results
        leave once. Weight gradient: activations come for every tap and cut of the columns, results leave once.
        """
        entry_bits = 8 * self.value_bytes + (self.index_bits if self._skips(gemm) else 0)
        if gemm.phase == "weight_grad":
            tiles = ceil(gemm.m / self.column_rows)
        else:
            tiles = ceil(gemm.m / (self.output_buffer_bytes // (self.macs * self.value_bytes)))
        dense_values = tiles * gemm.k * gemm.n + gemm.m * gemm.n
        return ceil(entries * vectors * entry_bits / 8) + dense_values * self.value_bytes

    def _skips(self, gemm: Gemm) -> bool:
        return self.skips_zeros and gemm.phase != "forward"


def gradient_columns(gemm: Gemm) -> NDArray[np.bool_]:
    """The output gradient as ``[columns, output channels]``: a column per pixel, and per tap in an input gradient."""
    return gemm.a.T if gemm.phase == "weight_grad" else gemm.a.reshape(gemm.m * gemm.taps, gemm.k // gemm.taps)
