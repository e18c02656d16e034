"""Images as a task."""

import pytest
import torch

from acf.bench.training.image_task import ImageTask
from acf.errors import DataError


def test_settings_are_chosen_on_training_images_that_are_held_out(image_task: ImageTask) -> None:
    tuning, whole = image_task.for_tuning().image_set, image_task.image_set
    assert torch.equal(torch.cat([tuning.train_images, tuning.test_images]), whole.train_images)
    assert torch.equal(torch.cat([tuning.train_labels, tuning.test_labels]), whole.train_labels)
    assert len(tuning.test_labels) == 32


def test_a_batch_larger_than_the_set_is_refused(image_task: ImageTask) -> None:
    with pytest.raises(DataError, match="a batch of 321 is more than the 320 training images"):
        image_task.steps(1.0, batch=321)
