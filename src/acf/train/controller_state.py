"""The saved state of a controller: what it records of the policy, and refusing a state of another run."""

from dataclasses import asdict
from typing import Any

from acf.errors import TopologyError
from acf.masks import TopologyPolicy
from acf.sparse import BlockLayout

KEYS = ("layers", "policy", "step")


def policy_state(policy: TopologyPolicy) -> dict[str, Any]:
    """The name of the method and its settings, as plain values."""
    return {"method": type(policy).__name__, **asdict(policy)}  # type: ignore[call-overload]


def check_state(state: dict[str, Any], policy: TopologyPolicy, layouts: dict[str, BlockLayout]) -> None:
    """Refuse a state of another kind, another policy or another model, by what differs."""
    if set(state) != set(KEYS):
        raise TopologyError(
            f"a topology state has the keys {', '.join(KEYS[:-1])} and {KEYS[-1]}, this one has "
            f"{', '.join(sorted(state)) or 'none'}; pass what TopologyController.state_dict() returned"
        )
    _check_policy(state["policy"], policy_state(policy))
    _check_layers(state["layers"], layouts)


def _check_policy(theirs: dict[str, Any], mine: dict[str, Any]) -> None:
    for key in [*mine, *(key for key in theirs if key not in mine)]:
        if key not in mine or key not in theirs or mine[key] != theirs[key]:
            raise TopologyError(
                f"the checkpoint was made with {key}={theirs.get(key)}, this policy has {key}={mine.get(key)}; "
                "attach the policy of the checkpoint, or start a new schedule without loading it"
            )


def _check_layers(theirs: dict[str, Any], layouts: dict[str, BlockLayout]) -> None:
    for name in [*layouts, *(name for name in theirs if name not in layouts)]:
        saved = tuple(theirs[name]["explored"].shape) if name in theirs else None
        here = (layouts[name].grid_rows, layouts[name].grid_cols) if name in layouts else None
        if saved != here:
            raise TopologyError(
                f"layer {name} has a {_grid(saved)} in the checkpoint and a {_grid(here)} here; "
                "sparsify_ the model as it was for the checkpoint, then attach and load"
            )


def _grid(shape: tuple[int, ...] | None) -> str:
    return "missing grid" if shape is None else f"{shape[0]} x {shape[1]} grid of blocks"
