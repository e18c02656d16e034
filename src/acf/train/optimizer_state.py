"""Optimizer state after blocks moved or were pruned, for any optimizer."""

from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from acf.errors import TopologyError
from acf.sparse import distributed_like, fill_slots, is_sharded, whole
from acf.train.initial_state import initial_value
from acf.train.optimizers import Optimizer, parameters_of, with_inner
from acf.train.state_shapes import SlotRelation, StateShape, remaining_relations
from acf.train.trial import why_not_afresh

StateRule = Callable[[dict[Any, Any], Tensor, Tensor], None]
STATE_RULES: dict[type, StateRule] = {}
"""Rules of optimizers whose state shapes do not tell; filled by `register_optimizer_state`."""

QUANTISED = (torch.uint8, torch.int8)
"""Types of codes, of which 0 need not mean zero."""

DEEPEST = 8
"""Levels of containers that are searched for tensors; objects may refer to themselves."""

Path = tuple[Any, ...]


def register_optimizer_state(optimizer_class: type, rule: StateRule) -> None:
    """Let ``rule(state, kept_slots, new_slots)`` change the state of ``optimizer_class`` when blocks move.

    It is called once per packed weight after the weight has changed, with ``state = optimizer.state[weight]``, and
    replaces every rule by shape. ``kept_slots``: int64 ``[nnz]``, for every slot of the weight the slot it was before.
    ``new_slots``: bool ``[nnz]``, the slots that hold a new block, whose weight is zero and whose state starts afresh.
    Register one, too, for an optimizer whose state does not start at zero, as the rules by shape let it; for those of
    torch and pytorch_optimizer the initial values are known.
    Where no slot went away, write in place and read nothing from the device: CUDA graphs keep addresses.

    >>> def rule(state, kept_slots, new_slots):
    ...     state["codes"] = state["codes"][kept_slots].masked_fill_(new_slots[:, None, None], 128)
    >>> register_optimizer_state(torch.optim.SGD, rule)
    >>> del STATE_RULES[torch.optim.SGD]
    """
    STATE_RULES[optimizer_class] = rule


class OptimizerState:
    """The state of the packed weights of a model in all of its optimizers and in the optimizers inside them."""

    def __init__(self, optimizers: Sequence[Optimizer], weights: Mapping[str, nn.Parameter]) -> None:
        members = [member for optimizer in optimizers for member in with_inner(optimizer)]
        self.members = list({id(member.state): member for member in members}.values())
        self.weights = weights
        self._per_slot: dict[tuple[int, int], set[Path]] = {}
        self._tried: set[int] = set()

    def check(self) -> None:
        """Decide what to do with every entry of the state; refuse what no rule covers. Changes nothing."""
        names = {id(weight): name for name, weight in self.weights.items()}
        self._per_slot = {}
        self._try_members()
        for index, member in enumerate(self.members):
            if _rule(member) is not None:
                continue
            _check_elsewhere(member, self.weights)
            for path, entries in _entries_by_path(member).items():
                shapes = [StateShape(_shape(x), tuple(p.shape), id(p) in names) for p, x in entries]
                for (parameter, value), possible in zip(entries, remaining_relations(shapes), strict=True):
                    name = names.get(id(parameter))
                    if name is not None and _is_per_slot(value, possible, _Entry(member, name, parameter.shape, path)):
                        self._per_slot.setdefault((index, id(parameter)), set()).add(path)

    def start_afresh(self, weight: nn.Parameter, new_slots: Tensor) -> None:
        """Set the state of the slots where bool ``new_slots [nnz]`` is true to its initial value, in place."""
        for member, rule, state, paths in self._states(weight):
            if rule is not None:
                rule(state, torch.arange(new_slots.numel(), device=new_slots.device), new_slots)
                continue
            for path, value in _tensors(state):
                if path in paths:
                    initial = initial_value(member, weight, path[0])
                    fill_slots(_by_slot(value, new_slots.numel()), new_slots, initial)

    def keep(self, weight: nn.Parameter, old_count: int, kept_slots: Tensor) -> None:
        """Keep only ``kept_slots`` (int64 ``[kept]``) of the ``old_count`` slots."""
        for _, rule, state, paths in self._states(weight):
            if rule is not None:
                rule(state, kept_slots, torch.zeros_like(kept_slots, dtype=torch.bool))
                continue
            for path in sorted(paths, key=str):
                _replace(state, path, lambda value: _kept(value, old_count, kept_slots))

    def _try_members(self) -> None:
        """Refuse optimizers that fail once a block of a weight starts afresh; each is tried once."""
        for member in self.members:
            held = {id(parameter) for parameter in parameters_of(member)}
            name = next((name for name, weight in self.weights.items() if id(weight) in held), None)
            if name is None or id(member) in self._tried or _rule(member) is not None:
                continue
            self._tried.add(id(member))
            failure = why_not_afresh(member, self.weights[name])
            if failure:
                optimizer = type(member).__name__
                raise TopologyError(
                    f"{optimizer} {failure} once the state of a new block starts at zero, so {name} cannot move "
                    f"blocks; set what it starts at with acf.register_optimizer_state({optimizer}, rule), or use "
                    "another optimizer, such as AdamW"
                )

    def _states(self, weight: nn.Parameter) -> Iterator[tuple[Optimizer, StateRule | None, dict[Any, Any], set[Path]]]:
        for index, member in enumerate(self.members):
            state = member.state.get(weight)
            if state:
                yield member, _rule(member), state, self._per_slot.get((index, id(weight)), set())


class _Entry(NamedTuple):
    """Where a state tensor stands, for messages."""

    member: Optimizer
    layer: str
    weight_shape: torch.Size
    path: Path

    def refusal(self, what: str) -> TopologyError:
        optimizer = type(self.member).__name__
        entry = ".".join("(parameter)" if isinstance(key, Tensor) else str(key) for key in self.path)
        return TopologyError(
            f"{optimizer} keeps {entry} of {self.layer}.weight {list(self.weight_shape)} {what}, so it would be wrong "
            f"after blocks move; say what becomes of it with acf.register_optimizer_state({optimizer}, rule), or use "
            "an optimizer whose state has the shape of the weight, such as AdamW"
        )


def _rule(member: Optimizer) -> StateRule | None:
    return next((STATE_RULES[each] for each in type(member).__mro__ if each in STATE_RULES), None)


def _entries_by_path(member: Optimizer) -> dict[Path, list[tuple[nn.Parameter, Any]]]:
    found: dict[Path, list[tuple[nn.Parameter, Any]]] = {}
    for parameter in parameters_of(member):
        for path, value in _tensors(member.state.get(parameter) or {}):
            found.setdefault(path, []).append((parameter, value))
    return found


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _is_per_slot(value: Any, possible: frozenset[SlotRelation], entry: _Entry) -> bool:
    """Whether the entry has one part per block; refuses what is not known to be per slot or shared."""
    if not isinstance(value, Tensor) or (type(value) not in (Tensor, nn.Parameter) and not is_sharded(value)):
        raise entry.refusal(f"in a {type(value).__name__}, whose tensors are not known")
    shape = f"as a tensor {list(value.shape)}"
    if not possible:
        raise entry.refusal(f"{shape}, which follows from no reduction of its shape")
    if len(possible) > 1:
        meanings = " or ".join(sorted(relation.value for relation in possible))
        raise entry.refusal(f"{shape}, which may be {meanings}")
    (relation,) = possible
    if relation is SlotRelation.MIXED:
        raise entry.refusal(f"{shape}, which {relation.value}")
    if relation is not SlotRelation.PER_SLOT:
        return False
    if value.dtype in QUANTISED:
        raise entry.refusal(f"in codes of type {value.dtype}, whose zero is not known")
    if is_sharded(value) and value.shape[0] != entry.weight_shape[0]:
        raise entry.refusal(f"{shape}, flattened and sharded over processes")
    return True


def _check_elsewhere(member: Optimizer, weights: Mapping[str, nn.Parameter]) -> None:
    """Refuse tensors like a packed weight that the optimizer keeps where the parameter does not lead to them."""
    parameters = parameters_of(member)
    known = {id(parameter) for parameter in parameters}
    names = {tuple(weight.shape): name for name, weight in weights.items() if id(weight) in known}
    other_keys = {key: value for key, value in member.state.items() if not isinstance(key, Tensor)}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in member.param_groups]
    attributes = {key: value for key, value in vars(member).items() if key not in ("state", "param_groups")}
    for path, value in _tensors({**attributes, "state": other_keys, "param_groups": groups}, into_objects=False):
        if id(value) not in known and tuple(value.shape) in names:
            raise _Entry(member, names[tuple(value.shape)], value.shape, path).refusal("apart from its state")


def _tensors(value: Any, path: Path = (), into_objects: bool = True) -> Iterator[tuple[Path, Any]]:
    """All tensors in nested dicts and lists with the keys that lead to them; objects that hold some, whole."""
    if len(path) > DEEPEST:
        return
    children = _children(value)
    if isinstance(value, Tensor):
        yield path, value
    elif children is not None:
        for key, child in children:
            yield from _tensors(child, (*path, key), into_objects)
    elif into_objects and hasattr(value, "__dict__") and any(True for _ in _tensors(vars(value), path)):
        yield path, value


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, MutableSequence | tuple) else None


def _replace(container: Any, path: Path, change: Callable[[Tensor], Tensor]) -> Any:
    """``container`` with the tensor at ``path`` changed: dicts and lists in place, tuples as new ones."""
    if not path:
        return change(container)
    key, rest = path[0], path[1:]
    changed = _replace(container[key], rest, change)
    if isinstance(container, tuple):
        parts = [*container[:key], changed, *container[key + 1 :]]
        return type(container)(*parts) if hasattr(container, "_fields") else tuple(parts)
    container[key] = changed
    return container


def _by_slot(value: Tensor, count: int) -> Tensor:
    """A view ``[nnz, ...]`` of state per slot, which may be flattened from the left."""
    return value if value.shape[0] == count else value.unflatten(0, (count, -1))  # type: ignore[no-untyped-call]


def _kept(value: Tensor, old_count: int, slots: Tensor) -> Tensor:
    kept = _by_slot(whole(value), old_count)[slots]
    return distributed_like(kept if kept.dim() == value.dim() else kept.flatten(0, 1), value)
