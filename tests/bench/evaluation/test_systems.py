"""Systems by kind and sparsity."""

from dataclasses import replace

import pytest
import torch

from acf.bench.evaluation.resnet50 import default_spec, load_resnet50
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


def test_a_kind_may_start_its_batch_norms_at_a_scale_of_its_own() -> None:
    spec = replace(default_spec("small", 8, "digits"), examples=64)
    task = load_resnet50("digits", None, spec, torch.device("cpu"))
    scales = {}
    for system in systems_of(["dense", "dense/start_scale=1"], [0.9], 16):
        network = task.model(system.variant.sizes(task.spec))
        scales[system.name] = float(network.layer1[0].norm3.weight.detach().mean())
    assert scales == {"dense": 0.0, "dense/start_scale=1": 1.0}


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
