"""Columns of `acf bench training`: runs by variant, and trials of settings."""

from math import isfinite
from typing import TYPE_CHECKING

from rich.table import Table

from acf.bench.columns.formats import NUMBER
from acf.columns import COUNT, RATIO, SHARE, Column, Format, shown_in, terminal_table

if TYPE_CHECKING:
    from acf.bench.training.record import TrainingComparison, Trial
    from acf.bench.training.summary import VariantSummary

_TIMES, _OUTCOMES = "times", "outcomes"
TRAINING_RUNS: "tuple[Column[VariantSummary], ...]" = (
    Column("variant", "variant", lambda summary: summary.variant),
    Column("runs", "seeds", lambda summary: summary.runs, NUMBER, places=(_TIMES,)),
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
    Column(
        "net_energy_ratio",
        "beyond idle",
        lambda summary: summary.net_energy_ratio,
        RATIO,
        "the same without what the idle device draws",
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
