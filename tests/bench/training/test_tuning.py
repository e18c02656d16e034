"""Which settings are tried next."""

import pytest

from acf.bench.training.record import TrainingComparison, Trial
from acf.bench.training.run import RunLength
from acf.bench.training.task import TASKS
from acf.bench.training.tuning import TuningOptions, with_best_settings
from acf.bench.training.variant import Variant
from acf.errors import DataError, SparsityError


def tried(*trials: tuple[float, float, float | None]) -> TrainingComparison:
    made = [Trial("dense", rate, decay, quality, 1, 1.0, 0.0) for rate, decay, quality in trials]
    return TrainingComparison(TASKS["small"], RunLength(), True, trials=made)


def test_rates_come_first_and_decays_at_the_best_of_them() -> None:
    options, dense = TuningOptions(rates=(0.1, 0.4), decays=(0.0, 1e-3)), Variant.parse("dense")
    first = options.next_trial(dense, tried())
    assert (first.rate, first.decay) == (0.1, None)
    after = options.next_trial(dense, tried((0.1, 5e-4, 80.0), (0.4, 5e-4, 70.0)))
    assert (after.rate, after.decay) == (0.1, 0.0)
    everything = tried((0.1, 5e-4, 80.0), (0.4, 5e-4, 70.0), (0.1, 0.0, 75.0), (0.1, 1e-3, 85.0))
    assert options.next_trial(dense, everything) is None
    best = with_best_settings(dense, everything)
    assert (best.rate, best.decay) == (0.1, 1e-3)


def test_a_variant_keeps_the_rate_that_it_names() -> None:
    options, own = TuningOptions(rates=(0.1, 0.4)), Variant.parse("dense/rate=0.3")
    assert options.trials_of(own) == 0
    assert options.next_trial(own, tried()) is None


def test_a_variant_that_always_diverges_is_refused() -> None:
    with pytest.raises(DataError, match=r"diverged at every learning rate that was tried \(5, 9\)"):
        with_best_settings(Variant.parse("dense"), tried((5.0, 0.0, None), (9.0, 0.0, None)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rates": (0.1, 0.0)}, "learning rate 0 of --tune-rates is not above 0"),
        ({"decays": (-1.0,)}, "weight decay -1 of --tune-decays is below 0"),
        ({"share": 0.0}, "--tune-share 0 is not above 0"),
    ],
)
def test_settings_that_train_nothing_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(SparsityError, match=message):
        TuningOptions(**values)
