"""`acf.plan`: before any training, which layers to make sparse, how dense, and what the whole step gains from it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from acf.errors import SparsityError, require_kind
from acf.masks import kept_blocks
from acf.masks.cost import LayerChoice, LayerCost, TimeLine, cheapest_choices, total_seconds
from acf.nn.advice import FAMILIES, Advice, advise, device_of, family_of, fitting_blocks
from acf.nn.block_spec import BlockSparsity
from acf.nn.fused_experts import unfused_experts
from acf.nn.kind import LayerKind
from acf.nn.replace import FilterFn
from acf.nn.separate_attention import separated_attention
from acf.nn.sparsify_blocks import choose_layers, layout_of, shape_of, sparsify_blocks
from acf.nn.summary import SparsitySummary
from acf.nn.timing import REPLAYS, captured_step, example_inputs, layer_step, seconds_of, step_seconds

SLOPE_FACTOR = 3.0
"""A layer is timed at the density asked for and at this many times it, which gives its time as a line."""

MOST_SPEEDUP = 1e6
"""No step gains as much: what is more is a slip."""

CHECK_TOLERANCE = 0.05
"""A prediction that differs from the measured step by less than this share is kept."""


LEAST_KEPT = 0.5
"""A plan for a given speedup that keeps less than this part of the weights that were asked for is refused."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class PlannedLayer:
    """One layer of a plan: its ``density`` (1.0: it stays dense) and seconds of its three passes, dense and planned.

    ``block`` is the side of its blocks; None stands for the block of the plan's Spec.
    """

    name: str
    density: float
    dense_seconds: float
    planned_seconds: float
    reason: str = ""
    block: int | None = None

    def __post_init__(self) -> None:
        if not (_is_number(self.density) and 0 < self.density <= 1):
            raise SparsityError(
                f"density {self.density!r} of layer {self.name!r} is outside (0, 1]; pass the share of blocks that stay"
            )
        if self.block is not None and (type(self.block) is not int or self.block < 1):
            raise SparsityError(
                f"block {self.block!r} of layer {self.name!r} is no positive integer; pass the side of a block, or None"
            )


@dataclass(frozen=True)
class SparsityPlan:
    """What `acf.plan` found; `acf.sparsify_` takes it in place of a `BlockSparsity`.

    ``step_seconds`` is the dense forward and backward pass as measured, ``planned_seconds`` the prediction with the
    planned layers and everything else as it is, ``measured_seconds`` the planned model's own pass, None where it was
    not checked. The optimizer is in none of them. ``advice`` is what blocks came from where only a sparsity was given.
    """

    spec: BlockSparsity
    layers: tuple[PlannedLayer, ...]
    step_seconds: float
    planned_seconds: float
    measured_seconds: float | None = None
    advice: Advice | None = None

    @property
    def speedup(self) -> float:
        """Predicted gain of the whole step."""
        return self.step_seconds / self.planned_seconds

    @property
    def measured_speedup(self) -> float | None:
        """Gain of the whole step with the planned layers in place; None where it was not checked."""
        return None if self.measured_seconds is None else self.step_seconds / self.measured_seconds

    @property
    def densities(self) -> dict[str, float]:
        """Density of every layer that becomes sparse."""
        return {layer.name: layer.density for layer in self.layers if layer.density < 1.0}

    @property
    def blocks(self) -> dict[str, int]:
        """Side of the blocks of every sparse layer whose block is not the Spec's."""
        return {layer.name: layer.block for layer in self.layers if layer.density < 1.0 and layer.block is not None}

    def __str__(self) -> str:
        whole = f"{1e3 * self.step_seconds:.2f} to {1e3 * self.planned_seconds:.2f} ms, forward and backward"
        lines = [f"{self.speedup:.2f}x for the whole step: {whole}"]
        if self.measured_speedup is not None and self.measured_seconds is not None:
            lines[0] += f"; checked: {self.measured_speedup:.2f}x, {1e3 * self.measured_seconds:.2f} ms"
        for layer in self.layers:
            what = "dense" if layer.density >= 1.0 else f"{layer.density:6.1%}"
            what += f" of {layer.block}" if layer.block else ""
            times = f"{1e3 * layer.dense_seconds:8.3f} -> {1e3 * layer.planned_seconds:8.3f} ms"
            lines.append(f"  {what:>13}  {times}  {layer.name}{f' ({layer.reason})' if layer.reason else ''}")
        if self.advice is not None:
            lines.append(f"  advice for a {self.advice}")
        return "\n".join(lines)


@dataclass(frozen=True)
class PlanOptions:
    """How `acf.plan` measures and what it may choose.

    ``rounds`` of which the best counts, whether the step will be a CUDA graph, and ``blocks``, sides of blocks among
    which "cost" picks one for each layer; empty, every layer has the Spec's. Small blocks train better in thin layers
    and run slower, so a mix such as ``blocks=(32, 64)`` may do more than either.

    A layer timed alone is not quite what it is in the step: caches are warmer, casts are not fused with neighbours. So
    the planned model's own step is timed as well, up to ``checks`` times: where it differs from the prediction by more
    than 5 % and a speedup was asked for, the difference is charged to the rest of the step and densities are chosen
    again. Every check builds (and with ``cuda_graphs`` compiles) a copy of the model; 0 leaves predictions unchecked.

    ``family``: "cnn", "transformer" or "rl", whose advice is taken where no block is given; empty: what the model's
    layers show.
    """

    rounds: int = 5
    cuda_graphs: bool = False
    blocks: tuple[int, ...] = ()
    checks: int = 2
    family: str = ""

    def __post_init__(self) -> None:
        if type(self.rounds) is not int or self.rounds < 1:
            raise SparsityError(
                f"rounds {self.rounds!r} is no positive integer; pass how often a layer is timed, such as 5"
            )
        if type(self.checks) is not int or self.checks < 0:
            raise SparsityError(f"checks {self.checks!r} is no count; pass 0 for none, or a positive integer")
        are_sides = isinstance(self.blocks, tuple | list)
        if not are_sides or any(type(block) is not int or block < 1 for block in self.blocks):
            raise SparsityError(f"blocks {self.blocks!r} are not positive integers; pass such as (32, 64)")
        if self.family != "" and self.family not in FAMILIES:
            raise SparsityError(f"family {self.family!r} is not one of {', '.join(FAMILIES)}; use one of these names")


def plan(
    model: nn.Module,
    example: Any,
    spec: BlockSparsity | float,
    speedup: float | None = None,
    filter_fn: FilterFn | None = None,
    options: PlanOptions | None = None,
) -> SparsityPlan:
    """Time ``model``'s layers and whole step on this machine and choose densities for ``spec``.

    A sparsity alone in place of a ``spec`` (``acf.plan(model, example, 0.9)``) takes the blocks that did best in our
    runs with such models on such a device (`acf.nn.advice`), and densities by "cost".

    ``example`` is the model's input, or a tuple of its inputs. ``spec.distribution`` "cost" chooses densities so that
    the step gains ``speedup``, or without it as much as a uniform distribution would. A speedup that would leave less
    than half of the weights that ``spec`` keeps is refused. Other distributions are as they are, except that layers
    which are no faster sparse stay dense. Call it inside ``torch.autocast`` if training will be. The model is left as
    it is. Whole steps are timed as forward and backward of the mean square of the output, or of the output itself where
    it is a scalar.
    """
    options = PlanOptions() if options is None else options
    require_kind(options, PlanOptions, "options", "pass PlanOptions, or None")
    require_kind(model, nn.Module, "model", "pass the torch.nn.Module to plan for")
    if speedup is not None and not (_is_number(speedup) and 1 <= speedup <= MOST_SPEEDUP):
        raise SparsityError(
            f"speedup {speedup!r:.40} is no number from 1 to {MOST_SPEEDUP:g}; pass the ratio of the dense step's time "
            "to the sparse one's"
        )
    if not isinstance(spec, BlockSparsity):
        advice = advise(options.family or family_of(model), device_of(model))
        advised = options if options.blocks else replace(options, blocks=_advised_blocks(model, advice, filter_fn))
        given = BlockSparsity(spec, advised.blocks[0], "cost")
        return replace(plan(model, example, given, speedup, filter_fn, advised), advice=advice)
    if options.blocks and spec.distribution != "cost":
        raise SparsityError(
            f"blocks {options.blocks} can only be chosen from by distribution 'cost', not {spec.distribution!r}; "
            "set distribution='cost', or leave blocks out"
        )
    with separated_attention(model), unfused_experts(model):
        costs, left_dense = _costs(model, example, spec, filter_fn, options)
    step = step_seconds(model, example, options.rounds, options.cuda_graphs)
    rest = step - sum(cost.dense_seconds for cost in costs.values())
    planned = _plan_for(costs, left_dense, spec, step, rest, speedup, options)
    for checks_left in reversed(range(options.checks)):
        if not planned.densities:
            break
        measured = _measured_seconds(model, planned, example, filter_fn, options)
        planned, off = replace(planned, measured_seconds=measured), measured - planned.planned_seconds
        if speedup is None or not checks_left or abs(off) <= CHECK_TOLERANCE * planned.planned_seconds:
            break
        rest += off
        planned = _plan_for(costs, left_dense, spec, step, rest, speedup, options)
    if speedup is not None and spec.distribution == "cost":
        _require_weights(costs, planned, rest, speedup)
    return planned


def _advised_blocks(model: nn.Module, advice: Advice, filter_fn: FilterFn | None) -> tuple[int, ...]:
    """The advised blocks, or smaller ones where too few of the model's layers can hold those."""
    with separated_attention(model), unfused_experts(model):
        chosen, _ = choose_layers(model, BlockSparsity(0.5, block=1), filter_fn)
        shapes = []
        for layer, kind in chosen.values():
            outputs, inputs = kind.weight(layer).shape[:2]
            shapes.append((outputs // kind.stacked(layer), inputs))
    return fitting_blocks(advice.blocks, shapes)


def _plan_for(
    costs: dict[str, LayerCost],
    left_dense: dict[str, str],
    spec: BlockSparsity,
    step: float,
    rest: float,
    speedup: float | None,
    options: PlanOptions,
) -> SparsityPlan:
    """Densities for a step of ``step`` seconds, ``rest`` of which are not in the layers that may become sparse."""
    choices = _choose(list(costs.values()), spec, None if speedup is None else step / speedup - rest)
    layers = [
        _planned(name, cost, choice, options) for (name, cost), choice in zip(costs.items(), choices, strict=True)
    ]
    layers += [PlannedLayer(name, 1.0, 0.0, 0.0, reason) for name, reason in left_dense.items()]
    return SparsityPlan(spec, tuple(layers), step, rest + total_seconds(choices))


def _require_weights(costs: dict[str, LayerCost], planned: SparsityPlan, rest: float, speedup: float) -> None:
    """Refuse a plan that reaches its speedup, or fails to, by removing far more than was asked for."""
    spec, densities = planned.spec, {layer.name: layer.density for layer in planned.layers}
    weights = {name: cost.shape.weights for name, cost in costs.items()}
    kept = sum(count * densities[name] for name, count in weights.items()) / sum(weights.values())
    if kept < LEAST_KEPT * (1.0 - spec.sparsity):
        even = _choose(list(costs.values()), replace(spec, distribution="uniform"), None)
        raise SparsityError(
            f"speedup {speedup:g} would leave {kept:.2%} of the weights, and sparsity {spec.sparsity:g} keeps "
            f"{1.0 - spec.sparsity:.2%}, which gains about {planned.step_seconds / (rest + total_seconds(even)):.2f}x "
            "here; ask for less speedup or more sparsity"
        )


def _measured_seconds(
    model: nn.Module, planned: SparsityPlan, example: Any, filter_fn: FilterFn | None, options: PlanOptions
) -> float:
    """The whole step of a copy of ``model`` that is sparse as planned."""
    sparse = copy.deepcopy(model)
    sparsify_by_plan(sparse, planned, filter_fn)
    return step_seconds(sparse, example, options.rounds, options.cuda_graphs)


def _costs(
    model: nn.Module, example: Any, spec: BlockSparsity, filter_fn: FilterFn | None, options: PlanOptions
) -> tuple[dict[str, LayerCost], dict[str, str]]:
    """What every layer costs that may become sparse, and why the others may not."""
    smallest = replace(spec, block=min(options.blocks)) if options.blocks else spec
    chosen, left_dense = choose_layers(model, smallest, filter_fn)
    if not chosen:
        raise SparsityError(f"no layer of the model can hold blocks of {smallest.block!r}; use a smaller block")
    specs = [replace(spec, block=block) for block in options.blocks] or [spec]
    if options.blocks:
        undivided = [name for name, (layer, kind) in chosen.items() if not _fitting(layer, kind, specs)]
        left_dense |= dict.fromkeys(undivided, f"none of the blocks {options.blocks} divides it")
        chosen = {name: each for name, each in chosen.items() if name not in undivided}
    return _measure_layers(chosen, example_inputs(model, example), specs, options), left_dense


def _planned(name: str, cost: LayerCost, choice: LayerChoice, options: PlanOptions) -> PlannedLayer:
    if choice.density >= 1.0:
        return PlannedLayer(name, 1.0, cost.dense_seconds, cost.dense_seconds, "faster dense")
    block = choice.block if options.blocks else None
    return PlannedLayer(name, choice.density, cost.dense_seconds, choice.seconds, block=block)


def sparsify_by_plan(model: nn.Module, planned: SparsityPlan, filter_fn: FilterFn | None) -> SparsitySummary:
    """Make the planned layers sparse, as `acf.sparsify_` does for a `SparsityPlan`."""
    densities = planned.densities
    with separated_attention(model), unfused_experts(model):
        missing = sorted(set(densities) - {name for name, _ in model.named_modules()})
    if missing:
        raise SparsityError(f"the plan names {missing[0]!r}, which the model does not have; plan for this model")
    if not densities:
        raise SparsityError("the plan leaves every layer dense, since none is faster sparse here; train it dense")

    def takes(module: nn.Module, name: str) -> bool:
        return name in densities and (filter_fn is None or filter_fn(module, name))

    return sparsify_blocks(model, planned.spec, takes, densities, planned.blocks)


def _choose(costs: list[LayerCost], spec: BlockSparsity, seconds: float | None) -> list[LayerChoice]:
    shapes = [cost.shape for cost in costs]
    distribution = "uniform" if spec.distribution == "cost" else spec.distribution
    counts = kept_blocks(shapes, spec.sparsity, distribution)
    given = [cost.sparse(count / shape.block_count) for cost, count, shape in zip(costs, counts, shapes, strict=True)]
    if spec.distribution != "cost":
        return given
    return cheapest_choices(costs, 1.0 - spec.sparsity, total_seconds(given) if seconds is None else seconds)


def _measure_layers(
    layers: dict[str, tuple[nn.Module, LayerKind]],
    inputs: dict[str, Tensor],
    specs: list[BlockSparsity],
    options: PlanOptions,
) -> dict[str, LayerCost]:
    """Every layer's time as lines over its density; layers alike in kind, shape and input are timed once."""
    timed: dict[tuple[object, ...], LayerCost] = {}
    costs: dict[str, LayerCost] = {}
    for name, (layer, kind) in layers.items():
        if name not in inputs:
            continue
        x = inputs[name]
        alike = (type(layer), repr(layer), tuple(x.shape), x.dtype)
        if alike not in timed:
            fitting = _fitting(layer, kind, specs) or specs  # with one block, `layout_of` refuses by name
            layouts = [layout_of(name, layer, kind, each) for each in fitting]
            times = [_time_line(layer, x, each, options) for each in fitting]
            lines = tuple(
                TimeLine(layout.block_height, layout.block_count, fixed, slope)
                for layout, (_, fixed, slope) in zip(layouts, times, strict=True)
            )
            shape = shape_of(name, layer, kind, layouts[0])
            timed[alike] = LayerCost(shape, min(dense for dense, _, _ in times), lines)
        costs[name] = replace(timed[alike], shape=replace(timed[alike].shape, name=name))
    return costs


def _fitting(layer: nn.Module, kind: LayerKind, specs: list[BlockSparsity]) -> list[BlockSparsity]:
    """The Specs whose block divides the layer."""
    outputs, inputs = kind.weight(layer).shape[:2]
    shape = (outputs // kind.stacked(layer), inputs)
    return [spec for spec in specs if not any(side % part for side, part in zip(shape, spec.block_shape, strict=True))]


def _time_line(layer: nn.Module, x: Tensor, spec: BlockSparsity, options: PlanOptions) -> tuple[float, float, float]:
    """Dense seconds, and offset and slope of the sparse layer's seconds over its density."""
    low = 1.0 - spec.sparsity
    high = min(0.9, SLOPE_FACTOR * low)
    copies = [nn.Sequential(copy.deepcopy(layer)) for _ in range(3)]
    for sparse, density in zip(copies[1:], (low, high), strict=True):
        sparsify_blocks(sparse, replace(spec, sparsity=1.0 - density, distribution="uniform", init="sparse"), None)
    steps: list[Callable[[], object]] = [layer_step(each, x) for each in copies]
    if options.cuda_graphs:
        steps = [captured_step(step) for step in steps]
    calls = REPLAYS if options.cuda_graphs else 1
    best = [float("inf")] * len(steps)
    for measured in range(options.rounds + 1):
        for index, step in enumerate(steps):
            seconds = seconds_of(step, x, calls)
            if measured:  # the first round builds, tunes and warms up
                best[index] = min(best[index], seconds)
    dense, at_low, at_high = best
    slope = max(0.0, (at_high - at_low) / (high - low)) if high > low else 0.0
    return dense, max(0.0, at_low - slope * low), slope
