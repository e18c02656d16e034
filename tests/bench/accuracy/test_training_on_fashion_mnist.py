"""The comparison in small, on real images: skipped where the data is not at hand."""

import os
from pathlib import Path

import pytest

from acf.bench.accuracy.pool import Workers, run_tasks
from acf.bench.accuracy.training import TrainingSpec
from acf.zoo.data.images import load_images

PLACES = (os.environ.get("ACF_DATA", ""), Path(__file__).parents[4] / "shared" / "data")
DATA = next((Path(place) for place in PLACES if place and (Path(place) / "fashion-mnist").is_dir()), None)
SPEC = TrainingSpec("fashion-mnist", "small", width=32, epochs=2, batch=64, learning_rate=0.1, examples=4000)
METHODS = ("dense", "dst-75", "bdwp-2:4", "dts-0.5")


@pytest.mark.skipif(DATA is None, reason="needs fashion-mnist/ in the folder that ACF_DATA names")
def test_sparse_training_learns_fashion_mnist_nearly_as_well_as_dense():
    """Measured: dense 82.2 % with seeds 0 and 1, the others at most 0.8 points below it; the margin is five."""
    images = load_images(SPEC.data_set, DATA, SPEC.examples, held_out=2000)
    accuracies = {run.method: run.accuracy for run in run_tasks(SPEC, images, [(m, 0) for m in METHODS], Workers())}
    assert accuracies["dense"] > 75.0
    for method in METHODS[1:]:
        assert accuracies[method] > accuracies["dense"] - 5.0, method
