"""Tables of measured ratios for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from acf.bench.kernels.cpu import KernelRatios, StepRatio
from acf.units import si


def layer_ratio_table(layers: Sequence[KernelRatios]) -> Table:
    """How many times as fast each pass is as torch's dense one."""
    table = Table(title="block-sparse against dense, same run", caption="best of interleaved rounds")
    several = len({layer.instructions for layer in layers}) > 1
    facts = ("layer", "block", "sparsity", "dtype", *(("instructions",) if several else ()))
    for heading in (*facts, "forward", "input grad", "weight grad", "all three", "rate"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for layer in layers:
        passes = (layer.forward, layer.input_gradient, layer.weight_gradient, layer.total)
        rate = 3 * layer.operations / layer.total.sparse_seconds
        ratios = [f"{times.ratio:.2f}x" for times in passes]
        cells = [str(layer.shape), str(layer.block), f"{layer.sparsity:.0%}", layer.dtype]
        cells += [layer.instructions] if several else []
        table.add_row(*cells, *ratios, si(rate, "FLOP/s"))
    return table


def step_ratio_table(steps: Sequence[StepRatio]) -> Table:
    """How many times as fast a whole training step is."""
    table = Table(title="whole training step: forward, loss, backward, AdamW")
    for heading in ("model", "block", "sparsity", "dense", "sparse", "ratio"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for step in steps:
        times = step.step
        facts = (step.model, str(step.block), f"{step.sparsity:.0%}")
        table.add_row(*facts, si(times.dense_seconds, "s"), si(times.sparse_seconds, "s"), f"{times.ratio:.2f}x")
    return table
