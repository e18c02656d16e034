"""Systems by kind and sparsity."""

import pytest

from acf.bench.evaluation.systems import systems_of
from acf.errors import SparsityError


def test_kinds_without_a_choice_of_sparsity_are_trained_once() -> None:
    names = [system.name for system in systems_of(["dense", "masked", "2:4"], [0.5, 0.9], 64)]
    assert names == ["dense", "masked-50", "masked-90", "2:4"]


@pytest.mark.parametrize(
    ("kinds", "sparsities", "message"),
    [
        (["pruned"], [0.5], "system 'pruned' is not one of dense, masked"),
        (["rigl"], [50.0], r"sparsity 50 is outside \(0, 1\)"),
        ([], [0.5], "--systems names none"),
    ],
)
def test_what_names_no_system_is_refused(kinds: list[str], sparsities: list[float], message: str) -> None:
    with pytest.raises(SparsityError, match=message):
        systems_of(kinds, sparsities, 64)
