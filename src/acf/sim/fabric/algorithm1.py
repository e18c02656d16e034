"""Time and energy of a prune/regrow update (Algorithm 1) on the fabric, amortised over the steps between two updates.

- Norms of present blocks: the vector unit squares and adds every kept weight.
- Gradient norms of absent blocks: the weight gradient of everything that is not kept, as a matrix product on the
  fabric; the vector unit squares and adds its outputs as they leave, and nothing but norms is stored.
- Selection: scores of present and of absent blocks are sorted, one score per cycle and pass, as the sorter of
  `acf.rtl` takes them; a pass merges as many sorted runs as a tile has rows.
- Controller: work is balanced anew, index and routing table are written (`acf.sim.fabric.topology_update`).

Blocks are counted as tiles of the fabric. Clearing the optimizer's state of regrown blocks is not counted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from acf.sim.fabric.energy import control_j
from acf.sim.fabric.spec import AdaptiveFabric
from acf.sim.result import OpResult, Result
from acf.sim.simulate import simulate
from acf.trace import BitTensor, Trace, TracedOp

UPDATE_PARTS = ("norms", "absent_gradients", "selection", "controller")
"""What an update consists of, in order."""


@dataclass(frozen=True)
class UpdateCost:
    """One update of all block-sparse layers, every ``every_steps``: by part of `UPDATE_PARTS`."""

    cycles: dict[str, int]
    energy_j: dict[str, float]
    every_steps: int

    @property
    def step_cycles(self) -> float:
        """Cycles of an update per optimizer step."""
        return sum(self.cycles.values()) / self.every_steps

    @property
    def step_energy_j(self) -> float:
        """Joules of an update per optimizer step."""
        return sum(self.energy_j.values()) / self.every_steps

    def share_of_run(self, step_cycles: int) -> float:
        """Fraction of a run's time that updates take, if a step takes ``step_cycles`` without them."""
        whole = step_cycles + self.step_cycles
        return self.step_cycles / whole if whole else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"step_cycles": self.step_cycles, "step_energy_j": self.step_energy_j}


def update_cost(traces: Iterable[Trace], fabric: AdaptiveFabric, result: Result) -> UpdateCost | None:
    """What Algorithm 1 costs for the block-sparse layers of a step; None where it has none.

    ``result`` is the step of ``traces`` played on ``fabric``: it has the controller's cycles.
    """
    cycles, energy = Counter[str](), Counter[str]()
    for trace in traces:
        for op in trace.ops:
            if op.phase == "weight_grad" and op.needed is not None:
                _add_layer(trace, op, fabric, (cycles, energy))
    if not cycles:
        return None
    every = fabric.topology_every_steps
    cycles["controller"] = every * sum(op.other_cycles for op in result.ops)
    for part in ("selection", "controller"):
        energy[part] += every * control_j(fabric, cycles[part])  # type: ignore[assignment]
    by_part = ({part: total[part] for part in UPDATE_PARTS} for total in (cycles, energy))
    return UpdateCost(*by_part, every_steps=every)


def sort_cycles(scores: int, fan_in: int) -> int:
    """Cycles to sort ``scores``, one per cycle and pass; a pass merges ``fan_in`` sorted runs.

    >>> sort_cycles(16, 16), sort_cycles(256, 16), sort_cycles(257, 16)
    (16, 512, 771)
    """
    passes, run = (1, fan_in) if scores else (0, fan_in)
    while run < scores:
        passes, run = passes + 1, run * fan_in
    return passes * scores


def _add_layer(trace: Trace, op: TracedOp, fabric: AdaptiveFabric, totals: "tuple[Counter[str], Counter[str]]") -> None:
    cycles, energy = totals
    unit = fabric.vector_unit
    present = trace.tensors[str(op.needed)]
    absent = present.size - present.nonzeros
    blocks = ceil(present.size / fabric.tile**2)
    present_blocks = round(blocks * present.nonzeros / present.size)
    gradients = _absent_gradients(trace, op, fabric)
    cycles["norms"] += ceil(present.nonzeros / unit.lanes)
    cycles["absent_gradients"] += max(gradients.cycles, ceil(absent / unit.lanes))
    cycles["selection"] += sort_cycles(present_blocks, fabric.tile) + sort_cycles(blocks - present_blocks, fabric.tile)
    value_pj = unit.operation_pj + unit.value_bytes * unit.sram_read_pj_per_byte
    energy["norms"] += present.nonzeros * value_pj * 1e-12  # type: ignore[assignment]
    energy["absent_gradients"] += sum(gradients.energy_j.values()) + absent * unit.operation_pj * 1e-12  # type: ignore[assignment]


def _absent_gradients(trace: Trace, op: TracedOp, fabric: AdaptiveFabric) -> OpResult:
    """The weight gradient of everything that is not kept, played on the fabric."""
    key = f"{op.needed}.absent"
    absent = BitTensor.from_array(~trace.tensors[str(op.needed)].to_bool())
    alone = Trace([replace(op, needed=key)], trace.tensors | {key: absent}, trace.label)
    return simulate(alone, fabric).ops[0]
