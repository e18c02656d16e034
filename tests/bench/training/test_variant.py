"""Names of variants."""

import pytest

from acf.bench.training.variant import Variant
from acf.errors import SparsityError


def test_a_name_gives_method_width_rate_and_block() -> None:
    variant = Variant.parse("rigl-90/block=32/width=64/rate=0.1/distribution=erk/moves=5")
    assert (variant.width, variant.rate, variant.block) == (64, 0.1, 32)
    assert variant.recipe.sparsity.sparsity == 0.9
    assert variant.recipe.sparsity.block == 32
    assert variant.recipe.sparsity.distribution == "erk"


def test_a_dense_variant_has_no_sparsity() -> None:
    assert Variant.parse("dense/width=64").is_dense


@pytest.mark.parametrize("name", ["densest", "static-90/width=wide", "static-90/colour=red"])
def test_a_name_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(SparsityError):
        Variant.parse(name)
