"""Advice by family of model: from records that exist, and used where no block is given."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import acf
from acf.errors import SparsityError
from acf.nn.advice import ADVICE, FAMILIES, advise, family_of, fitting_blocks
from acf.nn.plan import PlanOptions, plan
from acf.zoo.networks import NETWORKS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("advice", ADVICE, ids=lambda advice: f"{advice.family}-{advice.device}")
def test_every_piece_of_advice_names_pages_and_records_that_exist(advice: acf.nn.advice.Advice) -> None:
    for name in advice.source.split(", "):
        path = ROOT / name if "/" in name else ROOT / "docs" / "results" / name
        assert path.is_file(), f"{name} is not there"


def test_the_evidence_for_a_gpu_is_what_its_records_hold() -> None:
    for family, places in (("cnn", ("speedup", "quality_gap")), ("transformer", ("speedup", "sooner"))):
        advice = advise(family, "cuda")
        record = json.loads((ROOT / "docs" / "results" / advice.source.rpartition(", ")[2]).read_text())
        sparse = [each for each in record["data"]["summaries"] if each["variant"].split("/")[0].endswith("-90")]
        assert any(all(f"{abs(each[name]):.2f}" in advice.evidence for name in places) for each in sparse), advice


def test_every_family_has_advice_for_both_devices() -> None:
    assert {(each.family, each.device) for each in ADVICE} == {(f, d) for f in FAMILIES for d in ("cuda", "cpu")}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet50", "cnn"),
        ("alexnet", "cnn"),
        ("vit-s16", "transformer"),
        ("mixer-s16", "transformer"),
        ("bert-base", "transformer"),
        ("dqn", "cnn"),
    ],
)
def test_the_family_follows_from_where_the_weights_lie(name: str, family: str) -> None:
    with torch.device("meta"):
        assert family_of(NETWORKS[name].build()) == family


def test_smaller_blocks_are_taken_where_the_advised_ones_divide_too_little() -> None:
    assert fitting_blocks((32, 64), [(64, 64), (100, 10)]) == (32, 64)
    assert fitting_blocks((128,), [(64, 192)]) == (64,)
    with pytest.raises(SparsityError, match="neither blocks of 128 nor smaller ones divide half"):
        fitting_blocks((128,), [(100, 100)])
    with pytest.raises(SparsityError, match="no dense layer that could become sparse; plan before sparsify_"):
        fitting_blocks((128,), [])
    with pytest.raises(SparsityError, match="family 'gan' is not one of cnn, transformer, rl"):
        advise("gan", "cpu")


def test_a_plan_from_a_sparsity_alone_takes_the_advice_and_says_so() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    found = plan(model, torch.randn(64, 64), 0.75, options=PlanOptions(rounds=1, checks=0))
    assert found.advice == advise("transformer", "cpu")
    assert (found.spec.block, found.spec.distribution) == (32, "cost")
    assert "blocks of 32" in str(found)
    assert "4x the dense one" in str(found)
    named = plan(model, torch.randn(64, 64), 0.75, options=PlanOptions(rounds=1, checks=0, family="rl"))
    assert named.advice == advise("rl", "cpu")
