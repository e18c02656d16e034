"""A topology that never changes."""

from dataclasses import dataclass

from acf.errors import SparsityError
from acf.masks.policy import TopologyPolicy


@dataclass(frozen=True)
class StaticTopology(TopologyPolicy):
    """Train the topology that `acf.sparsify_` chose and never move a block: the baseline of every comparison."""

    def check_start(self, name: str, present: int, target: int, starts_dense: bool) -> None:
        """A layer must hold its target from the start."""
        if present != target:
            raise SparsityError(
                f"{name} starts with {present} blocks and a static topology would never prune it to {target}; "
                'use init="sparse", or a policy that prunes'
            )
