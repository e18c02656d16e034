"""Which weights are present and when that changes: score x schedule x distribution x pattern, combined by a policy."""

from acf.masks.distribution import DISTRIBUTIONS, LayerShape, kept_blocks
from acf.masks.nm import nm_mask
from acf.masks.policy import BlockDST, TopologyMove, plan_move
from acf.masks.schedule import SCHEDULES

__all__ = [
    "DISTRIBUTIONS",
    "SCHEDULES",
    "BlockDST",
    "LayerShape",
    "TopologyMove",
    "kept_blocks",
    "nm_mask",
    "plan_move",
]
