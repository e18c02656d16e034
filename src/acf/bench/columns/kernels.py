"""Columns of `acf bench kernels`: layers and whole steps on a CPU."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from acf.bench.columns.formats import NUMBER, SECONDS, WHOLE_PERCENT
from acf.columns import RATIO, Column, Format, si_format, terminal_table

if TYPE_CHECKING:
    from acf.bench.kernels.cpu import KernelRatios, StepRatio
    from acf.bench.kernels.cpu_step import CpuStep

_INSTRUCTIONS = "instructions"
KERNEL_RATIOS: "tuple[Column[KernelRatios], ...]" = (
    Column("layer", "layer", lambda layer: str(layer.shape)),
    Column("block", "block", lambda layer: layer.block, NUMBER),
    Column("sparsity", "sparsity", lambda layer: layer.sparsity, WHOLE_PERCENT),
    Column("dtype", "dtype", lambda layer: layer.dtype, NUMBER),
    Column("instructions", "instructions", lambda layer: layer.instructions, NUMBER, places=(_INSTRUCTIONS,)),
    Column("forward", "forward", lambda layer: layer.forward.ratio, RATIO),
    Column("input_gradient", "input grad", lambda layer: layer.input_gradient.ratio, RATIO),
    Column("weight_gradient", "weight grad", lambda layer: layer.weight_gradient.ratio, RATIO),
    Column("ratio", "all three", lambda layer: layer.total.ratio, RATIO),
    Column(
        "flop_per_s",
        "rate",
        lambda layer: 3 * layer.operations / layer.total.sparse_seconds,
        si_format("FLOP/s"),
        "floating-point operations on present blocks per second, all three passes",
    ),
)
"""`acf bench kernels`: one row for each layer, ratios of dense over sparse time."""


def kernel_ratio_table(layers: "Sequence[KernelRatios]") -> Table:
    """Speedup of each pass over torch's dense one; instruction sets are named where there are several."""
    several = len({layer.instructions for layer in layers}) > 1
    columns = [column for column in KERNEL_RATIOS if several or _INSTRUCTIONS not in column.places]
    return terminal_table(columns, layers, "block-sparse against dense, same run", "best of interleaved rounds")


STEP_RATIOS: "tuple[Column[StepRatio], ...]" = (
    Column("model", "model", lambda ratio: ratio.model),
    Column("block", "block", lambda ratio: ratio.block, NUMBER),
    Column("sparsity", "sparsity", lambda ratio: ratio.sparsity, WHOLE_PERCENT),
    Column("dense_seconds", "dense", lambda ratio: ratio.step.dense_seconds, SECONDS),
    Column("sparse_seconds", "sparse", lambda ratio: ratio.step.sparse_seconds, SECONDS),
    Column("ratio", "ratio", lambda ratio: ratio.step.ratio, RATIO),
)
"""`acf bench kernels`: one row for each network, whole training steps."""


def step_ratio_table(steps: "Sequence[StepRatio]") -> Table:
    """Speedup of whole training steps over dense ones."""
    return terminal_table(STEP_RATIOS, steps, "whole training step: forward, loss, backward, AdamW")


_MILLISECONDS = Format(lambda seconds: f"{1e3 * seconds:.0f} ms")
_SPREAD = Format(
    lambda times: f"{1e3 * times.median:.0f} ({1e3 * times.best:.0f} to {1e3 * max(times.seconds):.0f}) ms"
)

CPU_STEPS: "tuple[Column[CpuStep], ...]" = (
    Column("network", "network, images", lambda step: f"{step.spec.network}, {step.batch}"),
    Column("block", "block", lambda step: step.spec.block, NUMBER),
    Column("sparsity", "sparsity", lambda step: step.spec.sparsity, WHOLE_PERCENT),
    Column("dtype", "dtype", lambda step: step.spec.dtype, NUMBER),
    Column("instructions", "instructions", lambda step: step.spec.instructions or step.instructions, NUMBER),
    *(
        Column(way.replace(" ", "_"), way, lambda step, way=way: step.times[way], _SPREAD)  # type: ignore[misc]
        for way in ("dense eager", "dense compiled", "sparse eager", "sparse compiled")
    ),
    Column("ratio", "ratio", lambda step: step.ratio, RATIO, "better dense over better sparse, medians"),
    Column("best_ratio", "best ratio", lambda step: step.best_ratio, RATIO, "the same of best times"),
)
"""`acf bench kernels --kinds network`: one row for each network, whole training steps."""


def cpu_step_table(steps: "Sequence[CpuStep]") -> Table:
    """Speedup of whole training steps over the better of eager and compiled dense ones."""
    note = "median (best to worst round); ratios of the better dense over the better sparse, by medians and best times"
    return terminal_table(CPU_STEPS, steps, "whole training step: forward, loss, backward, AdamW", note)


def _part(kind: str, name: str) -> "Callable[[CpuStep], float]":
    return lambda step: step.parts[kind][name]


CPU_STEP_PARTS: "tuple[Column[CpuStep], ...]" = (
    Column("network", "network", lambda step: step.spec.network),
    *(
        Column(f"{kind}_{name}".replace(" ", "_"), f"{kind}: {name}", _part(kind, name), _MILLISECONDS)
        for kind, names in (
            ("dense", ("dense products", "attention", "optimizer", "rest")),
            ("sparse", ("sparse products", "dense products", "attention", "optimizer", "rest")),
        )
        for name in names
    ),
    Column("amdahl_bound", "bound", lambda step: step.amdahl_bound, RATIO, "Amdahl: all but sparse products as dense"),
)
"""`acf bench kernels --kinds network`: where the time of the better dense and the better sparse step goes."""


def cpu_step_part_table(steps: "Sequence[CpuStep]") -> Table:
    """Seconds of a step by part, and the ratio that Amdahl's law allows if only the sparse products get faster."""
    return terminal_table(CPU_STEP_PARTS, steps, "where the time goes", "bound: all but sparse products as in dense")
