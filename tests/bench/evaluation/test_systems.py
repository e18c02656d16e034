"""Systems by kind and sparsity."""

import pytest

from acf.bench.evaluation.systems import systems_of
from acf.bench.training.variant import Variant
from acf.errors import SparsityError


def test_kinds_without_a_choice_of_sparsity_are_trained_once() -> None:
    names = [system.name for system in systems_of(["dense", "masked", "2:4"], [0.5, 0.9], 64)]
    assert names == ["dense", "masked-50", "masked-90", "2:4"]


def test_a_kind_may_have_a_rate_and_a_decay_of_its_own() -> None:
    dense, masked, blocks = systems_of(["dense/rate=2e-4", "masked/rate=0.1/decay=0.01", "rigl/rate=0.4"], [0.9], 64)
    assert (dense.name, dense.variant.rate, dense.variant.decay) == ("dense/rate=2e-4", 2e-4, None)
    assert (masked.name, masked.masked) == ("masked-90/rate=0.1/decay=0.01", 0.9)
    assert (masked.variant.rate, masked.variant.decay) == (0.1, 0.01)
    assert (blocks.name, blocks.variant.rate) == ("rigl-90/block=64/rate=0.4", 0.4)
    assert blocks.variant.recipe.sparsity == Variant.parse(blocks.name).recipe.sparsity


@pytest.mark.parametrize(
    ("kinds", "sparsities", "message"),
    [
        (["pruned"], [0.5], "system 'pruned' is not one of dense, masked"),
        (["rigl"], [50.0], r"sparsity 50 is outside \(0, 1\)"),
        ([], [0.5], "--systems names none"),
        (["dense/width=64"], [0.5], "setting 'width=64' in system 'dense/width=64' is not one of rate, decay"),
        (["2:4/rate=fast"], [0.5], "rate=fast in variant 'dense/rate=fast' is not a number"),
    ],
)
def test_what_names_no_system_is_refused(kinds: list[str], sparsities: list[float], message: str) -> None:
    with pytest.raises(SparsityError, match=message):
        systems_of(kinds, sparsities, 64)
