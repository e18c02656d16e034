"""Time and energy of a prune/regrow update (Algorithm 1) on the fabric, amortised over the steps between two updates.

- Norms of present blocks: the vector unit squares and adds every kept weight.
- Gradient norms of absent blocks: the weight gradient of everything that is not kept, as a matrix product on the
  fabric; the vector unit squares and adds its outputs as they leave, and nothing but norms is stored.
- Selection: the topology unit reads the sums of every block, adds them up and sorts, as in gates
  (`acf.sim.fabric.topology_unit`); it moves up to `SORTER_MOVES` blocks at once.
- Controller: work is balanced anew, index and mask are written, moved blocks and their optimizer state are zeroed
  (`acf.sim.fabric.topology_update`).

Blocks are counted as tiles of the fabric; `MOVED_FRACTION` of the present ones move.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from acf.lowering import Gemm
from acf.lowering.products import matrix_products
from acf.lowering.tiles import tiles_any
from acf.sim.fabric.energy import topology_update_j
from acf.sim.fabric.spec import AdaptiveFabric
from acf.sim.fabric.topology_unit import SORTER_MOVES, TopologyUnit, moved_blocks
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


def _layer_cost(trace: Trace, op: TracedOp, fabric: AdaptiveFabric) -> UpdateCost:
    """The update of one layer but for the controller."""
    unit = fabric.vector_unit
    present = trace.tensors[str(op.needed)]
    absent = present.size - present.nonzeros
    gradients = _absent_gradients(trace, op, fabric)
    selection = sum(_selection_cycles(gemm, fabric) for gemm in matrix_products(trace, op))
    value_pj = unit.operation_pj + unit.value_bytes * unit.sram_read_pj_per_byte
    return UpdateCost(
        cycles={
            "norms": ceil(present.nonzeros / unit.lanes),
            "absent_gradients": max(gradients.cycles, ceil(absent / unit.lanes)),
            "selection": selection,
        },
        energy_j={
            "norms": present.nonzeros * value_pj * 1e-12,
            "absent_gradients": sum(gradients.energy_j.values()) + absent * unit.operation_pj * 1e-12,
            "selection": fabric.topology_every_steps * topology_update_j(fabric, selection),
        },
        every_steps=fabric.topology_every_steps,
    )


def _selection_cycles(gemm: Gemm, fabric: AdaptiveFabric) -> int:
    """Those of the topology unit for the blocks that a weight gradient keeps: by updates of as many as it sorts."""
    if gemm.needed is None:
        return 0
    unit, present = TopologyUnit.of(fabric), tiles_any(gemm.needed, fabric.tile)
    moves = moved_blocks(present)
    whole, rest = divmod(moves, SORTER_MOVES)
    cycles = whole * unit.select_cycles(present, SORTER_MOVES)
    return cycles + (unit.select_cycles(present, rest) if rest else 0)


def _absent_gradients(trace: Trace, op: TracedOp, fabric: AdaptiveFabric) -> OpResult:
    """The weight gradient of everything that is not kept, played on the fabric."""
    key = f"{op.needed}.absent"
    absent = BitTensor.from_array(~trace.tensors[str(op.needed)].to_bool())
    alone = Trace([replace(op, needed=key)], trace.tensors | {key: absent}, trace.label)
    return simulate(alone, fabric).ops[0]
