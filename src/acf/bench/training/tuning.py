"""Learning rate and weight decay of every variant, chosen on a part of the training data that is held out for it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, isfinite

from acf.bench.training.loop import train_variant
from acf.bench.training.record import TrainingComparison, Trial
from acf.bench.training.run import RunLength
from acf.bench.training.task import Task
from acf.bench.training.variant import Variant
from acf.errors import DataError, SparsityError

TUNING_SEED = 1_000_003
"""Seed of all trials; the runs that are compared count theirs from 0."""


@dataclass(frozen=True)
class TuningOptions:
    """What is tried for each variant: all ``rates``, then with the best of them all ``decays``.

    A trial is ``share`` of a run long, with the whole rise and fall of the learning rate. A variant that names its own
    ``rate`` or ``decay`` keeps it.
    """

    rates: tuple[float, ...] = ()
    decays: tuple[float, ...] = ()
    share: float = 1.0

    def __post_init__(self) -> None:
        for rate in self.rates:
            if not 0.0 < rate < inf:
                raise SparsityError(f"the learning rate {rate:g} of --tune-rates is not above 0; leave it out")
        for decay in self.decays:
            if not 0.0 <= decay < inf:
                raise SparsityError(f"the weight decay {decay:g} of --tune-decays is below 0; leave it out")
        if not 0.0 < self.share <= 1.0:
            raise SparsityError(f"--tune-share {self.share:g} is not above 0 and at most 1; pass such as 0.5")

    def trials_of(self, variant: Variant) -> int:
        """How many trials ``variant`` needs at the most."""
        rates = 0 if variant.rate is not None else len(self.rates)
        return rates + (0 if variant.decay is not None else len(self.decays))

    def next_trial(self, variant: Variant, comparison: TrainingComparison) -> Variant | None:
        """``variant`` with the settings to try next; None when ``comparison`` has all trials."""
        candidates = [] if variant.rate is not None else [replace(variant, rate=rate) for rate in self.rates]
        missing = _first_untried(candidates, comparison)
        if missing is None and variant.decay is None and self.decays:
            rate = with_best_settings(variant, comparison).rate
            missing = _first_untried([replace(variant, rate=rate, decay=decay) for decay in self.decays], comparison)
        return missing


def _first_untried(candidates: Iterable[Variant], comparison: TrainingComparison) -> Variant | None:
    for candidate in candidates:
        sizes = candidate.sizes(comparison.task)
        tried = [(trial.rate, trial.weight_decay) for trial in comparison.trials_of(candidate.name)]
        if (sizes.rate, sizes.weight_decay) not in tried:
            return candidate
    return None


def try_settings(task: Task, variant: Variant, length: RunLength) -> Trial:
    """Train once with ``variant``'s settings; ``task`` is one `for_tuning`."""
    run = train_variant(task, variant, TUNING_SEED, length)
    sizes = variant.sizes(task.spec)
    return Trial(
        variant=variant.name,
        rate=sizes.rate,
        weight_decay=sizes.weight_decay,
        quality=run.quality if isfinite(run.quality) else None,
        steps=run.steps,
        seconds=run.seconds,
        compile_seconds=run.compile_seconds,
    )


def with_best_settings(variant: Variant, comparison: TrainingComparison) -> Variant:
    """``variant`` with the rate and decay of its best trial; as it is where nothing was tried."""
    best = comparison.best_trial(variant.name)
    if best is not None:
        return replace(variant, rate=best.rate, decay=best.weight_decay)
    if tried := comparison.trials_of(variant.name):
        rates = ", ".join(f"{trial.rate:g}" for trial in tried)
        raise DataError(f"{variant.name} diverged at every learning rate that was tried ({rates}); try lower ones")
    return variant
