"""The options of `acf bench training`."""

import pytest

from acf.bench.training.bench import TrainingOptions, run_training_bench
from acf.errors import SparsityError


def test_sizes_override_those_of_the_task() -> None:
    spec = TrainingOptions(task="resnet18", width=32, batch=64).spec
    assert (spec.width, spec.batch, spec.rate) == (32, 64, 0.4)


def test_a_run_is_twelve_epochs_unless_something_is_said() -> None:
    assert TrainingOptions().length.epochs == 12.0
    assert TrainingOptions(steps=5).length.steps == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TrainingOptions(task="imagenet"), "task 'imagenet' is not one of resnet18"),
        (TrainingOptions(epochs=1, seconds=2), "epochs and seconds are both given"),
        (TrainingOptions(variants="dense,densest"), "method 'densest' begins with none of"),
        (TrainingOptions(device="tpu"), "device 'tpu' is not one of auto, cpu, cuda"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_data_is_read(options: TrainingOptions, message: str) -> None:
    with pytest.raises(SparsityError, match=message):
        run_training_bench(options, lambda what, share: None)
