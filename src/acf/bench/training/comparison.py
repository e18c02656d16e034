"""Training every variant with every seed, the variants taking turns, into one record."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from acf.bench import OnProgress
from acf.bench.training.loop import Assignment, train_in_turns
from acf.bench.training.record import (
    TrainingComparison,
    load_comparison,
    require_alike,
    require_settings,
    session_facts,
)
from acf.bench.training.run import RunLength
from acf.bench.training.task import Task
from acf.bench.training.tuning import TuningOptions, try_settings, with_best_settings
from acf.bench.training.variant import Variant
from acf.files import is_stream


@dataclass(frozen=True)
class ComparisonOptions:
    """Which variants and seeds to run, and the file that keeps them; runs in it are not made again.

    ``tuning`` says which learning rates are tried first; ``command`` is kept in the record. ``logs``: a folder in which
    every run has one for `acf watch`. ``interleaved``: the variants of a seed train part by part, not run by run.
    """

    variants: tuple[str, ...]
    seeds: int = 3
    out: Path | None = None
    tuning: TuningOptions = field(default_factory=TuningOptions)
    command: str = ""
    logs: Path | None = None
    interleaved: bool = False


def compare_variants(
    task: Task, length: RunLength, options: ComparisonOptions, on_progress: OnProgress
) -> TrainingComparison:
    """Train every variant with every seed, the variants taking turns, so that a drifting machine disturbs all alike.

    Learning rates are chosen before the first of these runs.
    """
    runner = _Runner(task, length, options, on_progress)
    variants = [runner.tuned(Variant.parse(name)) for name in options.variants]
    for variant in variants:
        runner.refuse_other_settings(variant)
    for seed in range(options.seeds):
        for together in [variants] if options.interleaved else [[variant] for variant in variants]:
            runner.train(together, seed)
    return runner.comparison


class _Runner:
    """Makes the runs that the record lacks, and saves it after each."""

    def __init__(self, task: Task, length: RunLength, options: ComparisonOptions, on_progress: OnProgress) -> None:
        self.task, self.length, self.options, self.on_progress = task, length, options, on_progress
        self.tuning_task: Task | None = None
        tuning = options.tuning
        self.total = len(options.variants) * options.seeds
        self.total += sum(tuning.trials_of(Variant.parse(name)) for name in options.variants)
        self.done = 0
        session = session_facts(task, options.command)
        share = tuning.share if tuning.rates or tuning.decays else None
        self.comparison = TrainingComparison(task.spec, length, task.higher_is_better, [session], tuning_share=share)
        if options.out is not None and options.out.exists() and not is_stream(options.out):
            found = load_comparison(options.out)
            require_alike(found, self.comparison, options.out)
            found.tuning_share = share if found.tuning_share is None else found.tuning_share
            self.comparison = found
        self.session = self.comparison.place_session(session)

    def tuned(self, variant: Variant) -> Variant:
        """``variant`` with the best of the settings that were tried for it, the missing trials made first."""
        tuning = self.options.tuning
        last = self.done + tuning.trials_of(variant)
        while (candidate := tuning.next_trial(variant, self.comparison)) is not None:
            sizes = candidate.sizes(self.task.spec)
            self._tell(f"{variant.name}, trying rate {sizes.rate:g} and decay {sizes.weight_decay:g}", 0.0)
            self.tuning_task = self.tuning_task or self.task.for_tuning()
            trial = try_settings(self.tuning_task, candidate, self.length.shortened(tuning.share))
            self.comparison.trials.append(replace(trial, session=self.session))
            self._save()
            self.done = min(self.done + 1, last)
        self.done = last
        return with_best_settings(variant, self.comparison) if tuning.trials_of(variant) else variant

    def train(self, variants: Sequence[Variant], seed: int) -> None:
        """The runs of that seed that the record does not have, in turns."""
        missing = {each.name: each for each in variants if self.comparison.find(each.name, seed) is None}
        self.done += len(variants) - len(missing)
        if missing:
            shares = dict.fromkeys(missing, 0.0)
            assignments = [self._assignment(variant, seed, shares) for variant in missing.values()]
            runs = train_in_turns(self.task, assignments, seed, self.length)
            self.comparison.runs += [replace(run, session=self.session) for run in runs]
            self._save()
        self.done += len(missing)

    def _assignment(self, variant: Variant, seed: int, shares: dict[str, float]) -> Assignment:
        """``variant`` with its log; what is done of all in ``shares`` is told."""

        def tell(share: float) -> None:
            shares[variant.name] = share
            self._tell(f"{variant.name}, seed {seed}", sum(shares.values()))

        logs = self.options.logs
        return Assignment(variant, tell, logs and logs / f"{variant.name.replace('/', '_')}-{seed}")

    def refuse_other_settings(self, variant: Variant) -> None:
        """Refuse a record in which ``variant`` was trained with another learning rate or weight decay."""
        sizes = variant.sizes(self.task.spec)
        require_settings(self.comparison.runs_of(variant.name), sizes.rate, sizes.weight_decay, self.options.out)

    def _tell(self, what: str, share: float) -> None:
        self.on_progress(what, (self.done + share) / self.total)

    def _save(self) -> None:
        if self.options.out is not None:
            self.comparison.save(self.options.out)
