"""Names of variants."""

import pytest

from acf.bench.training.task import TASKS
from acf.bench.training.variant import Variant
from acf.errors import SparsityError


def test_a_name_gives_method_width_rate_and_block() -> None:
    variant = Variant.parse("rigl-90/block=32/width=64/rate=0.1/distribution=erk/moves=5")
    assert (variant.width, variant.rate, variant.block) == (64, 0.1, 32)
    assert variant.recipe.sparsity.sparsity == 0.9
    assert variant.recipe.sparsity.block == 32
    assert variant.recipe.sparsity.distribution == "erk"


def test_a_name_gives_the_start_topology() -> None:
    assert Variant.parse("rigl-90/topology=butterfly").recipe.sparsity.topology == "butterfly"
    with pytest.raises(SparsityError, match="topology 'ring' is not one of norm"):
        Variant.parse("static-90/topology=ring")


def test_a_dense_variant_has_no_sparsity() -> None:
    assert Variant.parse("dense/width=64").is_dense


def test_sizes_of_a_variant_override_those_of_the_task() -> None:
    sizes = Variant.parse("dense/layers=6/batch=8/decay=0.05/rate=0.001").sizes(TASKS["gpt"])
    assert (sizes.layers, sizes.batch, sizes.weight_decay, sizes.rate) == (6, 8, 0.05, 0.001)
    assert (sizes.width, sizes.context) == (1024, 1024)
    narrow = Variant.parse("dense/attention_width=256/embedding_width=128/head_width=64").sizes(TASKS["gpt"]).gpt
    assert (narrow.width, narrow.attention_width, narrow.embedding_width, narrow.heads) == (1024, 256, 128, 4)
    assert Variant.parse("dense/experts=8").sizes(TASKS["gpt"]).gpt.experts == 8


def test_a_network_for_images_has_no_depth_to_choose() -> None:
    with pytest.raises(SparsityError, match=r"layers in variant .* is a GPT's, and resnet18 has none; leave it out"):
        Variant.parse("dense/layers=6").sizes(TASKS["resnet18"])


def test_options_of_the_plan_are_read_by_their_names() -> None:
    assert Variant.parse("static-90/distribution=cost/plan_rounds=9").plan == {"rounds": 9}
    with pytest.raises(SparsityError, match=r"setting 'plan_colour' in variant .* is not known; use plan_rounds"):
        Variant.parse("static-90/plan_colour=red")
    assert Variant.parse("static-90/distribution=cost/plan_checks=0").plan == {"checks": 0}
    with pytest.raises(SparsityError, match="rounds 0 is no positive integer"):
        Variant.parse("static-90/distribution=cost/plan_rounds=0")


@pytest.mark.parametrize("name", ["dense/batch=0", "densest", "static-90/width=wide", "static-90/colour=red"])
def test_a_name_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(SparsityError):
        Variant.parse(name)


@pytest.mark.parametrize("rate", ["nan", "inf", "-1", "1e300"])
@pytest.mark.parametrize("key", ["rate", "decay"])
def test_a_rate_that_no_optimizer_takes_is_refused_where_it_is_read(key: str, rate: str) -> None:
    with pytest.raises(SparsityError, match=f"{key}={rate} in variant 'dense/{key}={rate}' is not a number that"):
        Variant.parse(f"dense/{key}={rate}")
    assert Variant.parse(f"dense/{key}=0")


def test_a_start_scale_is_refused_where_the_network_has_no_choice_of_it() -> None:
    with pytest.raises(SparsityError, match=r"start_scale in variant 'dense/start_scale=1' is for acf bench resnet50"):
        Variant.parse("dense/start_scale=1").sizes(TASKS["resnet18"])
