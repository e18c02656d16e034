"""What a training session refuses before anything is trained."""

import pytest

from acf.bench.training.image_task import ImageTask
from acf.bench.training.session import refuse_unfit
from acf.bench.training.variant import Variant
from acf.errors import SparsityError


@pytest.mark.parametrize("distribution", ["uniform", "cost"])
def test_a_block_that_does_not_divide_a_layer_is_refused_whatever_the_distribution(
    image_task: ImageTask, distribution: str
) -> None:
    with pytest.raises(SparsityError, match=r"block=48.*block 48 does not divide.*use a block that does"):
        refuse_unfit(image_task, [Variant.parse(f"static-90/block=48/distribution={distribution}/width=64")])


def test_a_plan_that_chooses_among_blocks_is_not_refused_for_one_that_does_not_divide(image_task: ImageTask) -> None:
    assert is_refused(image_task, "static-90/block=48/distribution=cost/width=64")
    assert not is_refused(image_task, "static-90/block=48/distribution=cost/plan_blocks=32+48/width=64")


def is_refused(task: ImageTask, variant: str) -> bool:
    try:
        refuse_unfit(task, [Variant.parse(variant)])
    except SparsityError:
        return True
    return False
