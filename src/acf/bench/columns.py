"""The columns of every bench's rows, and the tables that show them. A new column is one entry here."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.table import Table

from acf.columns import (
    BYTES,
    COUNT,
    RATIO,
    SHARE,
    Column,
    Format,
    markdown_table,
    shown_in,
    si_format,
    terminal_table,
)

if TYPE_CHECKING:
    from acf.bench.accuracy.comparison import Comparison, MethodSummary
    from acf.bench.epochs.figures import EpochFigures
    from acf.bench.fabric.comparison import PlayedStep
    from acf.bench.kernels.cpu import KernelRatios, StepRatio
    from acf.bench.kernels.cpu_step import CpuStep
    from acf.bench.simulators import SimulatorTiming
    from acf.bench.traces import TraceFigures
    from acf.bench.tracking.recording import Tracked
    from acf.bench.training.record import TrainingComparison, Trial
    from acf.bench.training.summary import VariantSummary
    from acf.bench.zeros.measure import MeasuredZeros, Spread

_SECONDS = si_format("s")
_NUMBER = Format(str)
_WHOLE_PERCENT = Format(lambda share: f"{share:.0%}")
_MOST_LOST = Format(lambda lost: f"{lost[0]} {lost[1]:.1%}")
"""A reason and the share of MAC slots it cost."""


ACCURACY: "tuple[Column[MethodSummary], ...]" = (
    Column("method", "method", lambda summary: summary.method),
    Column("seeds", "seeds", lambda summary: summary.seeds, _NUMBER),
    Column(
        "accuracy",
        "accuracy",
        lambda summary: (summary.accuracy, summary.deviation),
        Format(lambda spread: "{:.2f} ± {:.2f} %".format(*spread)),
        "mean and sample deviation over seeds, in per cent of the tested images",
    ),
    Column("to_dense", "to dense", lambda summary: summary.to_dense, Format("{:+.2f}".format, absent="")),
    Column("sparsity", "weights absent", lambda summary: summary.sparsity, SHARE),
    Column("mean_density", "density over the run", lambda summary: summary.mean_density, SHARE),
    Column("dropped_again", "dropped again", lambda summary: summary.dropped_again, Format("{:.0%}".format, absent="")),
)
"""`acf bench accuracy`: one row for each method."""


def accuracy_table(comparison: "Comparison") -> Table:
    """Accuracy of every method with its deviation over seeds, and the difference to dense training."""
    spec = comparison.spec
    title = f"{spec.network}, width {spec.width}, {spec.epochs} epochs of {comparison.data}"
    return terminal_table(ACCURACY, comparison.summaries(), title)


def accuracy_markdown(comparison: "Comparison") -> str:
    """The same as Markdown, with machine, date and commands."""
    commands = "\n".join(f"    {command}" for command in comparison.commands)
    heading = f"{comparison.data}; {comparison.machine}; {comparison.date}."
    return f"{heading}\n\n{commands}\n\n{markdown_table(ACCURACY, comparison.summaries())}"


_TIMES, _OUTCOMES = "times", "outcomes"
TRAINING_RUNS: "tuple[Column[VariantSummary], ...]" = (
    Column("variant", "variant", lambda summary: summary.variant),
    Column("runs", "seeds", lambda summary: summary.runs, _NUMBER, places=(_TIMES,)),
    Column("seconds", "seconds", lambda summary: summary.seconds, Format("{:.1f}".format), places=(_TIMES,)),
    Column("step_ms", "ms/step", lambda summary: summary.step_ms, Format("{:.2f}".format), places=(_TIMES,)),
    Column(
        "speedup",
        "speedup",
        lambda summary: summary.speedup,
        RATIO,
        "seconds of the first variant over these",
        places=(_TIMES,),
    ),
    Column(
        "compile_seconds",
        "compile",
        lambda summary: summary.compile_seconds,
        Format("{:.1f}".format),
        "seconds of compilation, tuning and capture at the first use, not part of seconds",
        places=(_TIMES,),
    ),
    Column(
        "whole_seconds",
        "with compilation",
        lambda summary: summary.whole_seconds,
        Format("{:.1f}".format),
        "seconds of all steps and of the compilation",
        places=(_TIMES,),
    ),
    Column("joules", "joules", lambda summary: summary.joules, Format("{:,.0f}".format), places=(_TIMES,)),
    Column(
        "energy_ratio",
        "energy",
        lambda summary: summary.energy_ratio,
        RATIO,
        "joules of the first variant over these",
        places=(_TIMES,),
    ),
    Column("peak_gib", "GiB", lambda summary: summary.peak_gib, Format("{:.1f}".format), places=(_TIMES,)),
    Column(
        "quality",
        "quality",
        lambda summary: (summary.quality, summary.quality_deviation, summary.diverged, summary.runs),
        Format(lambda outcome: _quality_text(*outcome)),
        "mean and sample deviation over seeds",
        places=(_OUTCOMES,),
    ),
    Column(
        "quality_gap",
        "better by",
        lambda summary: summary.quality_gap if isfinite(summary.quality_gap) else None,
        Format("{:+.3f}".format),
        places=(_OUTCOMES,),
    ),
    Column(
        "seconds_to_baseline",
        "seconds to baseline",
        lambda summary: summary.seconds_to_baseline,
        Format("{:.1f}".format),
        "until the first variant's final quality is reached",
        places=(_OUTCOMES,),
    ),
    Column(
        "sooner",
        "sooner",
        lambda summary: summary.sooner,
        RATIO,
        "seconds of the first variant over seconds to baseline",
        places=(_OUTCOMES,),
    ),
    Column("sparsity", "weights absent", lambda summary: summary.sparsity, SHARE, places=(_OUTCOMES,)),
    Column("moves", "moves", lambda summary: summary.moves, Format("{:.0f}".format), places=(_OUTCOMES,)),
    Column(
        "rate",
        "rate",
        lambda summary: summary.rate,
        Format("{:g}".format),
        "peak learning rate",
        places=(_OUTCOMES,),
    ),
)
"""`acf bench training`: one row for each variant, in two tables."""


def _quality_text(quality: float, deviation: float, diverged: int, runs: int) -> str:
    if diverged:
        return "diverged" if diverged == runs else f"{diverged} of {runs} diverged"
    return f"{quality:.3f} ± {deviation:.3f}"


def training_tables(comparison: "TrainingComparison") -> list[Table]:
    """Time, energy and memory of every variant beside the first; then quality; then what was tried before, if any."""
    rows, name = comparison.summaries(), f"{comparison.task.name}, width {comparison.task.width}"
    times = "seconds: the training loop; compilation and measurements of quality are not in it"
    outcomes = "sooner: seconds of the first variant over seconds until its final quality was reached"
    tables = [
        terminal_table(shown_in(_TIMES, TRAINING_RUNS), rows, f"{name}: time, energy and memory", times),
        terminal_table(shown_in(_OUTCOMES, TRAINING_RUNS), rows, f"{name}: {comparison.task.quality}", outcomes),
    ]
    return [*tables, trials_table(comparison)] if comparison.trials else tables


TRIALS: "tuple[Column[Trial], ...]" = (
    Column("variant", "variant", lambda trial: trial.variant),
    Column("rate", "rate", lambda trial: trial.rate, Format("{:g}".format)),
    Column("weight_decay", "weight decay", lambda trial: trial.weight_decay, Format("{:g}".format)),
    Column("quality", "held-out quality", lambda trial: trial.quality, Format("{:.3f}".format, absent="diverged")),
    Column("steps", "steps", lambda trial: trial.steps, COUNT),
)
"""`acf bench training --tune-rates`: one row for each setting that was tried."""


def trials_table(comparison: "TrainingComparison") -> Table:
    """Every learning rate and weight decay that was tried, with its quality on held-out training data."""
    edges = comparison.at_the_edge()
    caption = f"best at the end of the tried rates, a better one may lie beyond: {', '.join(edges)}" if edges else ""
    share = f"{comparison.tuning_share or 1.0:.0%} of a run each"
    return terminal_table(
        TRIALS, comparison.trials, f"settings tried, {share}", caption, section=lambda trial: trial.variant
    )


_POINTS = Format(lambda share: f"{100 * share:.1f} pp")

TRACKING: "tuple[Column[Tracked], ...]" = (
    Column("method", "threshold", lambda run: run.method),
    Column("mean_distance", "mean distance", lambda run: run.mean_miss, _POINTS),
    Column("worst_layer", "worst layer", lambda run: run.worst_layer_miss, _POINTS),
    Column("off_at_the_end", "off at the end", lambda run: run.drift, Format(lambda share: f"{100 * share:+.1f} pp")),
    Column("accuracy", "accuracy", lambda run: run.accuracy, Format("{:.2f} %".format)),
)
"""`acf bench tracking`: one row for each threshold rule, distances from the target in percentage points."""


def tracking_table(runs: "Sequence[Tracked]") -> Table:
    """Distances of the achieved gradient sparsity from its target, and accuracies."""
    return terminal_table(TRACKING, runs, f"achieved gradient sparsity, target {runs[0].target:.0%}")


_INSTRUCTIONS = "instructions"
KERNEL_RATIOS: "tuple[Column[KernelRatios], ...]" = (
    Column("layer", "layer", lambda layer: str(layer.shape)),
    Column("block", "block", lambda layer: layer.block, _NUMBER),
    Column("sparsity", "sparsity", lambda layer: layer.sparsity, _WHOLE_PERCENT),
    Column("dtype", "dtype", lambda layer: layer.dtype, _NUMBER),
    Column("instructions", "instructions", lambda layer: layer.instructions, _NUMBER, places=(_INSTRUCTIONS,)),
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
    Column("block", "block", lambda ratio: ratio.block, _NUMBER),
    Column("sparsity", "sparsity", lambda ratio: ratio.sparsity, _WHOLE_PERCENT),
    Column("dense_seconds", "dense", lambda ratio: ratio.step.dense_seconds, _SECONDS),
    Column("sparse_seconds", "sparse", lambda ratio: ratio.step.sparse_seconds, _SECONDS),
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
    Column("block", "block", lambda step: step.spec.block, _NUMBER),
    Column("sparsity", "sparsity", lambda step: step.spec.sparsity, _WHOLE_PERCENT),
    Column("dtype", "dtype", lambda step: step.spec.dtype, _NUMBER),
    Column("instructions", "instructions", lambda step: step.spec.instructions or step.instructions, _NUMBER),
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


SIMULATOR: "tuple[Column[SimulatorTiming], ...]" = (
    Column("name", "trace", lambda timing: timing.name),
    Column("architecture", "architecture", lambda timing: timing.architecture, _NUMBER),
    Column("dense_macs", "dense MACs", lambda timing: timing.dense_macs, si_format("")),
    Column("seconds", "time", lambda timing: timing.seconds, _SECONDS),
    Column("macs_per_s", "dense-equivalent MAC/s", lambda timing: timing.macs_per_s, si_format("/s")),
    Column("peak_memory_bytes", "memory", lambda timing: timing.peak_memory_bytes, BYTES),
)
"""`acf bench simulators`: one row for each simulated trace."""


def simulator_table(timings: "Sequence[SimulatorTiming]") -> Table:
    """Host time and memory of simulations."""
    return terminal_table(SIMULATOR, timings, "simulator speed, exact schedules", "memory: peak of this process so far")


def fabric_columns(played: "Sequence[PlayedStep]", fabric: str) -> "tuple[Column[PlayedStep], ...]":
    """`acf bench fabric`: one row for each step and machine; ratios are of the machine over ``fabric``."""
    own = {(each.network, each.sparsity): each for each in played if each.machine == fabric}

    def over_fabric(figure: "Callable[[PlayedStep], float]") -> "Callable[[PlayedStep], float | None]":
        def ratio(each: "PlayedStep") -> float | None:
            is_rival = each.machine != fabric
            return figure(each) / figure(own[each.network, each.sparsity]) if is_rival else None

        return ratio

    rival_ratio = Format(RATIO.plain, absent="")
    return (
        Column("step", "step", lambda each: f"{each.network} {each.sparsity:.0%}"),
        Column("machine", "machine", lambda each: each.machine),
        Column("step_utilization", "U", lambda each: each.step_utilization, SHARE),
        Column("utilization", "U, products", lambda each: each.utilization, SHARE),
        Column("step_seconds", "whole step", lambda each: each.step_seconds, _SECONDS),
        Column("seconds", "products", lambda each: each.seconds, _SECONDS),
        Column("energy_j", "energy", lambda each: each.energy_j, si_format("J")),
        Column("faster", "faster", over_fabric(lambda each: each.step_seconds), rival_ratio),
        Column("products_faster", "products", over_fabric(lambda each: each.seconds), rival_ratio),
        Column("less_energy", "less energy", over_fabric(lambda each: each.energy_j), rival_ratio),
        Column(
            "most_lost",
            "lost most to",
            lambda each: max(each.lost.items(), key=lambda item: item[1], default=("-", 0.0)),
            _MOST_LOST,
        ),
    )


def fabric_table(played: "Sequence[PlayedStep]", fabric: str) -> Table:
    """Whole steps on the fabric and its rivals."""
    return terminal_table(
        fabric_columns(played, fabric),
        played,
        f"one training step on {fabric} and on machines of equal MACs, clock and DRAM (GPUs: whole cards)",
        "faster, less energy: whole steps on the fabric against the machine of the row; products: of products alone\n"
        "U: effectual MACs / MAC slots of the whole step, and of its products (aim above 80 % at 90 % sparsity)\n"
        "whole step: with normalisation, activation, softmax, residual, loss and optimizer, overlapped with products"
        + "".join(f"\n{_update_line(each)}" for each in played if each.update),
    )


def _update_line(played: "PlayedStep") -> str:
    """What Algorithm 1 costs a fabric, in words."""
    update = played.update or {}
    total = sum(update["cycles"].values())
    parts = ", ".join(f"{part.replace('_', ' ')} {cycles / total:.1%}" for part, cycles in update["cycles"].items())
    return (
        f"{played.sparsity:.0%}: pruning and regrowing every {update['every_steps']} steps (Algorithm 1) takes "
        f"{update['share_of_run']:.1%} of a run on top of the steps: {parts}"
    )


FABRIC_PRODUCT: tuple[Column[dict[str, Any]], ...] = (
    Column("name", "layer", lambda product: product["name"]),
    Column("phase", "pass", lambda product: product["phase"]),
    Column("cycles", "cycles", lambda product: product["cycles"], COUNT),
    Column("utilization", "utilisation", lambda product: product["utilization"], SHARE),
    Column(
        "most_lost",
        "lost most to",
        lambda product: (product["most_lost_to"], product["most_lost"]) if product["most_lost_to"] else None,
        _MOST_LOST,
    ),
)
"""`acf bench fabric --layers`: one row for each matrix product of a step."""


def fabric_products_table(played: "PlayedStep") -> Table:
    """Every product of a step: utilisation, and the reason that cost it most."""
    title = f"{played.network} {played.sparsity:.0%} on {played.machine}, by product"
    return terminal_table(FABRIC_PRODUCT, played.by_op, title)


def _zero_share(key: str, title: str, figures: "Callable[[TraceFigures], float | None]") -> "Column[TraceFigures]":
    return Column(key, title, figures, _WHOLE_PERCENT)


def _tensordash(key: str, title: str) -> "Column[TraceFigures]":
    return Column(f"tensordash_{key}", title, lambda each: each.tensordash[key], RATIO)


SPEEDUPS: "tuple[Column[TraceFigures], ...]" = (
    _tensordash("forward", "tensordash FP"),
    _tensordash("input_grad", "BP"),
    _tensordash("weight_grad", "WU"),
    _tensordash("compute", "compute"),
    _tensordash("step", "step"),
    Column("spartann", "spartann", lambda each: each.spartann, RATIO),
    Column("fabric", "acf-512", lambda each: each.fabric, RATIO),
)
"""Speedups of one traced step, for the tables of traces and of epochs."""

TRACE: "tuple[Column[TraceFigures], ...]" = (
    Column("label", "trace", lambda each: each.label.split(":")[0]),
    _zero_share("zero_activations", "A", lambda each: each.zeros.get("activation")),
    _zero_share("zero_weights", "W", lambda each: each.zeros.get("weight")),
    _zero_share("zero_gradients", "G", lambda each: each.zeros.get("gradient")),
    _zero_share("idle_forward", "idle FP", lambda each: each.idle_macs.get("forward")),
    _zero_share("idle_input_grad", "BP", lambda each: each.idle_macs.get("input_grad")),
    _zero_share("idle_weight_grad", "WU", lambda each: each.idle_macs.get("weight_grad")),
    *SPEEDUPS,
)
"""`acf traces`: one row for each trace."""


def trace_table(figures: "Sequence[TraceFigures]") -> Table:
    """Zeros, products with a zero and speedups of several traces."""
    labels = "\n".join(each.label for each in figures)
    return terminal_table(
        TRACE,
        figures,
        "Zeros of real training steps, and what skipping them gains",
        "A, W, G: zero activations, weights, output gradients; idle: MACs with a zero operand\n"
        "FP, BP, WU: forward, input gradient, weight gradient; compute: all, without DRAM; step: all, with DRAM\n"
        "tensordash over tensorcore; spartann (BP and WU) over itself without skipping; acf-512 over tensorcore-512\n"
        f"{labels}",
    )


def _of_trace(column: "Column[TraceFigures]") -> "Column[EpochFigures]":
    """The same column over the trace of an epoch."""
    return Column(column.key, column.title, lambda point: column.value(point.figures), column.format)


EPOCH: "tuple[Column[EpochFigures], ...]" = (
    Column("epoch", "epochs", lambda point: point.epoch, _NUMBER),
    Column("loss", "loss", lambda point: point.loss, Format("{:.2f}".format)),
    Column("accuracy", "accuracy", lambda point: point.accuracy, SHARE),
    Column("zero_activations", "A", lambda point: point.figures.zeros.get("activation", 0.0), SHARE),
    Column("zero_gradients", "G", lambda point: point.figures.zeros.get("gradient", 0.0), SHARE),
    *(_of_trace(column) for column in SPEEDUPS),
)
"""`acf epochs`: one row for each captured epoch."""


def epoch_table(points: "Sequence[EpochFigures]") -> Table:
    """Zeros and speedups of steps captured over the epochs of one training run."""
    return terminal_table(
        EPOCH,
        points,
        "What skipping zeros gains as training goes on",
        f"A, G: zero activations and output gradients; accuracy: on held-out examples\n{points[-1].figures.label}",
    )


_SPREAD = Format(lambda spread: f"{100 * spread.mean:.1f} ± {100 * spread.deviation:.1f} %", absent="")


def _whole(operand: str) -> "Callable[[MeasuredZeros], Spread | None]":
    return lambda measured: measured.whole.get(operand)


ZEROS: "tuple[Column[MeasuredZeros], ...]" = (
    Column("network", "network", lambda measured: measured.network),
    Column("sparsity", "blocks absent", lambda measured: measured.sparsity, _WHOLE_PERCENT),
    Column("gradient_target", "DTS", lambda measured: measured.gradient_target or None, Format(str, absent="")),
    Column("loss", "loss", lambda measured: sum(measured.losses) / len(measured.losses), Format("{:.2f}".format)),
    Column("activations", "A", _whole("activations"), _SPREAD, "zeros of all activations, mean and sample deviation"),
    Column("gradients", "G", _whole("gradients"), _SPREAD, "zeros of all output gradients"),
    Column("weights", "W", _whole("weights"), _SPREAD, "zeros of all weights"),
)
"""`acf bench zeros`: one row for each variant of a network."""


def zeros_table(measured: "Sequence[MeasuredZeros]") -> Table:
    """Zeros of all elements of a captured step, over seeds."""
    title = f"zeros of a captured step, {len(measured[0].losses)} seeds; {measured[0].data}"
    return terminal_table(ZEROS, measured, title, "every layer: --json or --out")
