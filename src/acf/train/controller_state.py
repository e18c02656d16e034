"""The saved state of a controller: its format version, what it records of the policy, and refusing another run's."""

from dataclasses import MISSING, asdict, fields
from typing import Any

from acf.errors import TopologyError
from acf.masks import TopologyPolicy
from acf.sparse import BlockLayout

VERSION = 1
"""Format of a controller's state. 0: release 0.1.0, which had no number; 1: with a ``version``."""

KEYS = ("layers", "policy", "step")


def policy_state(policy: TopologyPolicy) -> dict[str, Any]:
    """The name of the method and its settings, as plain values."""
    return {"method": type(policy).__name__, **asdict(policy)}  # type: ignore[call-overload]


def check_state(state: dict[str, Any], policy: TopologyPolicy, layouts: dict[str, BlockLayout]) -> None:
    """Refuse a state of a newer format, another kind, another policy or another model, by what differs."""
    check_version(state.get("version", 0), VERSION, "the topology state")
    if set(state) - {"version"} != set(KEYS):
        raise TopologyError(
            f"a topology state has the keys {', '.join(KEYS[:-1])} and {KEYS[-1]}, this one has "
            f"{', '.join(sorted(state)) or 'none'}; pass what TopologyController.state_dict() returned"
        )
    _check_policy(state["policy"], policy)
    _check_layers(state["layers"], layouts)


def check_version(version: Any, newest: int, what: str) -> None:
    """Refuse a format that this release does not know."""
    if type(version) is not int or not 0 <= version <= newest:
        raise TopologyError(
            f"{what} has format {version!r}, this release of acf reads formats up to {newest}; "
            "load it with the release that wrote it, or a newer one"
        )


def _check_policy(theirs: dict[str, Any], policy: TopologyPolicy) -> None:
    """Refuse another policy. A setting that the checkpoint lacks is newer than it, and had its default by then."""
    mine = policy_state(policy)
    defaults = {each.name: each.default for each in fields(policy) if each.default is not MISSING}  # type: ignore[arg-type]
    theirs = {**{key: value for key, value in defaults.items() if key in mine}, **theirs}
    for key in [*mine, *(key for key in theirs if key not in mine)]:
        if key not in mine:
            raise TopologyError(
                f"the checkpoint was made with {key}={theirs[key]}, a setting that this {mine['method']} does not "
                "have; load it with the release of acf that wrote it"
            )
        if key not in theirs or mine[key] != theirs[key]:
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
