"""Which weights are present and when that changes: score x schedule x distribution x pattern, combined by a policy."""

from acf.masks.choice import TopologyMove, plan_move, plan_pruning, top_blocks
from acf.masks.distribution import DISTRIBUTIONS, LayerShape, kept_blocks
from acf.masks.gradual import GradualPruning
from acf.masks.moving import SCORES, SET, BlockDST
from acf.masks.nm import nm_mask
from acf.masks.policy import PeriodicPolicy, StaticTopology, TopologyPolicy
from acf.masks.schedule import SCHEDULES

__all__ = [
    "DISTRIBUTIONS",
    "SCHEDULES",
    "SCORES",
    "SET",
    "BlockDST",
    "GradualPruning",
    "LayerShape",
    "PeriodicPolicy",
    "StaticTopology",
    "TopologyMove",
    "TopologyPolicy",
    "kept_blocks",
    "nm_mask",
    "plan_move",
    "plan_pruning",
    "top_blocks",
]
