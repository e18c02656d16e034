"""A short real training: handwritten digits with sparse gradients."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import acf
from acf.gradients import tracking


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    return images, torch.tensor(data.target)


def trained(digits, spec: acf.GradientSparsity | None, epochs: int = 12) -> tuple[float, np.ndarray]:
    """Test accuracy, and the achieved gradient sparsity ``[step, layer]``."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.Tanh(),  # not ReLU: its gradients have no zeros of their own
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )
    if spec is not None:
        acf.sparsify_(model, spec, filter_fn=lambda module, name: isinstance(module, nn.Conv2d))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    images, labels = digits
    achieved = []
    for _ in range(epochs):
        for batch in torch.randperm(1400).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            achieved.append([figure.sparsity for figure in tracking(model).values()])
    with torch.no_grad():
        accuracy = (model(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()
    return accuracy, np.array(achieved)


def test_dts_tracks_its_target_within_two_points_and_keeps_the_accuracy(digits):
    dense, _ = trained(digits, None)
    accuracy, achieved = trained(digits, acf.GradientSparsity(target=0.5))
    # One batch of 100 digits differs from the next by some points, so 12 steps are averaged.
    settled = achieved[60:].reshape(-1, 12, 2).mean(axis=1)
    assert np.abs(settled - 0.5).max() < 0.02
    assert accuracy > dense - 0.012


def test_gaussian_and_static_thresholds_miss_by_more_than_ten_points_in_the_same_training(digits):
    for method in ("gaussian", "static"):
        _, achieved = trained(digits, acf.GradientSparsity(target=0.5, method=method), epochs=6)
        assert np.abs(achieved[-12:].mean(axis=0) - 0.5).max() > 0.10, method
