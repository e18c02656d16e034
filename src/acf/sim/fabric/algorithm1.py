"""Time and energy of a prune/regrow update (Algorithm 1) on the fabric, amortised over the steps between two updates.

- Norms of present blocks: the vector unit squares and adds every kept weight.
- Gradient norms of absent blocks: the weight gradient of everything that is not kept, as a matrix product on the
  fabric; the vector unit squares and adds its outputs as they leave, and nothing but norms is stored.
- Selection: scores of present and of absent blocks are sorted, one score per cycle and pass, as the sorter of
  `acf.rtl` takes them; a pass merges as many sorted runs as a tile has rows.
- Controller: work is balanced anew, index and routing table are written (`acf.sim.fabric.topology_update`).

Blocks are counted as tiles of the fabric. Clearing the optimizer's state of regrown blocks is not counted.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from acf.sim.fabric.energy import topology_update_j
from acf.sim.fabric.spec import AdaptiveFabric
from acf.sim.result import OpResult, Result
from acf.sim.simulate import simulate
from acf.trace import BitTensor, Trace, TracedOp

LAYER_PARTS = ("norms", "absent_gradients", "selection")
"""Parts of an update that are counted layer by layer; the controller's cycles come with the step that was played."""


@dataclass(frozen=True)
class UpdateCost:
    """One update of all block-sparse layers, every ``every_steps``, by part: `LAYER_PARTS` and "controller".

    The controller's energy is not among ``energy_j``: every step's result has its share, as "control".
    """

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
    layers = [
        _layer_cost(trace, op, fabric)
        for trace in traces
        for op in trace.ops
        if op.phase == "weight_grad" and op.needed is not None
    ]
    if not layers:
        return None
    every = fabric.topology_every_steps
    controller = every * sum(op.other_cycles for op in result.ops)
    return UpdateCost(
        cycles={part: sum(layer.cycles[part] for layer in layers) for part in LAYER_PARTS} | {"controller": controller},
        energy_j={part: sum(layer.energy_j[part] for layer in layers) for part in LAYER_PARTS},
        every_steps=every,
    )


def sort_cycles(scores: int, fan_in: int) -> int:
    """Cycles to sort ``scores``, one per cycle and pass; a pass merges ``fan_in`` sorted runs.

    >>> sort_cycles(16, 16), sort_cycles(256, 16), sort_cycles(257, 16)
    (16, 512, 771)
    """
    passes, run = (1, fan_in) if scores else (0, fan_in)
    while run < scores:
        passes, run = passes + 1, run * fan_in
    return passes * scores


def _layer_cost(trace: Trace, op: TracedOp, fabric: AdaptiveFabric) -> UpdateCost:
    """The update of one layer but for the controller."""
    unit = fabric.vector_unit
    present = trace.tensors[str(op.needed)]
    absent = present.size - present.nonzeros
    blocks = ceil(present.size / fabric.tile**2)
    present_blocks = round(blocks * present.nonzeros / present.size)
    gradients = _absent_gradients(trace, op, fabric)
    sorting = sort_cycles(present_blocks, fabric.tile) + sort_cycles(blocks - present_blocks, fabric.tile)
    value_pj = unit.operation_pj + unit.value_bytes * unit.sram_read_pj_per_byte
    return UpdateCost(
        cycles={
            "norms": ceil(present.nonzeros / unit.lanes),
            "absent_gradients": max(gradients.cycles, ceil(absent / unit.lanes)),
            "selection": sorting,
        },
        energy_j={
            "norms": present.nonzeros * value_pj * 1e-12,
            "absent_gradients": sum(gradients.energy_j.values()) + absent * unit.operation_pj * 1e-12,
            "selection": fabric.topology_every_steps * topology_update_j(fabric, sorting),
        },
        every_steps=fabric.topology_every_steps,
    )


def _absent_gradients(trace: Trace, op: TracedOp, fabric: AdaptiveFabric) -> OpResult:
    """The weight gradient of everything that is not kept, played on the fabric."""
    key = f"{op.needed}.absent"
    absent = BitTensor.from_array(~trace.tensors[str(op.needed)].to_bool())
    alone = Trace([replace(op, needed=key)], trace.tensors | {key: absent}, trace.label)
    return simulate(alone, fabric).ops[0]
