"""Fresh weights have the spectrum of a random matrix; trained ones do not."""

import pytest
import torch
from torch import nn

from acf.nn.freshness import are_fresh, is_fresh

INITS = {
    "torch's own": lambda weight: nn.init.kaiming_uniform_(weight, a=5**0.5),
    "He": nn.init.kaiming_normal_,
    "Glorot": nn.init.xavier_uniform_,
    "orthogonal": nn.init.orthogonal_,
    "truncated": lambda weight: nn.init.trunc_normal_(weight, std=0.02),
    "zero": nn.init.zeros_,
}


@pytest.mark.parametrize("init", INITS.values(), ids=INITS.keys())
def test_weights_of_every_usual_initialisation_and_shape_are_fresh(init):
    for seed in range(10):
        torch.manual_seed(seed)
        for shape in ((16, 16), (10, 512), (256, 64), (64, 576)):
            assert is_fresh(init(torch.empty(shape))), shape


@pytest.mark.parametrize("make_optimizer", [lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), torch.optim.AdamW])
def test_a_classifier_is_no_longer_fresh_when_it_has_learned(make_optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
    x, y = torch.randn(256, 64), torch.randint(0, 4, (256,))
    x += 2.0 * nn.functional.one_hot(y, 64)
    optimizer = make_optimizer(model.parameters())
    matrices = [model[index].weight.detach() for index in (0, 2, 4)]
    assert are_fresh(matrices)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() > 0.9
    assert not are_fresh(matrices)


def test_one_trained_layer_makes_the_model_a_trained_one():
    fresh = torch.randn(64, 64)
    assert are_fresh([fresh, fresh])
    assert not are_fresh([fresh, fresh + 0.5])


def test_weights_without_values_are_not_called_fresh():
    assert not is_fresh(torch.empty(8, 8, device="meta"))
