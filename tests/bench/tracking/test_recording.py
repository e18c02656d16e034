"""Recording threshold rules over a run."""

import pytest
import torch

from acf.bench.tracking.recording import Tracked, TrackingSpec, record_tracking
from acf.errors import SparsityError
from acf.zoo.data.images import ImageSet

RUNS = [
    Tracked("dts", 0.5, 2, 80.0, {"1": [0.0, 0.2, 0.5, 0.6], "2": [0.0, 0.2, 0.4, 0.5]}),
    Tracked("static", 0.5, 2, 70.0, {"1": [0.0, 0.5, 0.9, 0.9], "2": [0.0, 0.5, 0.5, 0.5]}),
]


@pytest.fixture
def images() -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (64, 12, 12, 1), generator=generator, dtype=torch.uint8)
    labels = torch.arange(64) % 10
    return ImageSet("noise", 0, pixels, labels, pixels[:20], labels[:20])


def test_distances_leave_out_the_warm_up():
    dts, static = RUNS
    assert dts.mean_miss == pytest.approx((0.0 + 0.1 + 0.1 + 0.0) / 4)
    assert dts.worst_layer_miss == pytest.approx(0.05)
    assert static.worst_layer_miss == pytest.approx(0.4)
    assert static.drift == pytest.approx(0.2)


def test_every_step_of_every_layer_that_a_gradient_flows_back_from_is_recorded(images):
    run = record_tracking("top-k", TrackingSpec(steps=3, batch=8, warm_up_steps=1, width=16), images)
    assert len(run.layers) == 4  # three convolutions and the head; nothing flows back into the images
    assert all(len(shares) == 3 for shares in run.layers.values())
    assert run.mean_miss < 0.02  # ranking hits the target in every step


def test_a_run_shorter_than_its_warm_up_is_refused():
    with pytest.raises(SparsityError, match="steps 60 are not above the 60 of the warm-up"):
        TrackingSpec(steps=60)
