"""Which weight blocks are present and when that changes: score x schedule x distribution x pattern, set by a policy."""

from acf.masks.algorithm1 import NEVER_REGROWN, Candidates, LayerState, Move, MoveSize, Shrink, plan, plan_move
from acf.masks.block_dst import SCORES, BlockDST
from acf.masks.distribution import DISTRIBUTIONS, LayerShape, kept_blocks
from acf.masks.find import build_policy, find_policy
from acf.masks.gradual import GradualPruning
from acf.masks.parts import GridParts, plan_in_parts
from acf.masks.policy import PeriodicPolicy, TopologyPolicy, copy_to_device
from acf.masks.schedule import SCHEDULES
from acf.masks.selection import first_true, top_blocks
from acf.masks.set import SET
from acf.masks.static import StaticTopology
from acf.masks.topology import TOPOLOGIES, StartTopology, check_topology
from acf.sparse import nm_mask, transposable_mask

POLICIES: dict[str, type[TopologyPolicy]] = {
    "block-dst": BlockDST,
    "set": SET,
    "gradual": GradualPruning,
    "static": StaticTopology,
}
"""Every policy by its short name. A new policy is one file in this package and one line here."""

__all__ = [
    "DISTRIBUTIONS",
    "NEVER_REGROWN",
    "POLICIES",
    "SCHEDULES",
    "SCORES",
    "SET",
    "TOPOLOGIES",
    "BlockDST",
    "Candidates",
    "GradualPruning",
    "GridParts",
    "LayerShape",
    "LayerState",
    "Move",
    "MoveSize",
    "PeriodicPolicy",
    "Shrink",
    "StartTopology",
    "StaticTopology",
    "TopologyPolicy",
    "build_policy",
    "check_topology",
    "copy_to_device",
    "find_policy",
    "first_true",
    "kept_blocks",
    "nm_mask",
    "plan",
    "plan_in_parts",
    "plan_move",
    "top_blocks",
    "transposable_mask",
]
