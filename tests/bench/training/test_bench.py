"""The options of `acf bench training`."""

from pathlib import Path

import pytest

from acf.bench.training import bench
from acf.bench.training.bench import TrainingOptions, run_training_bench
from acf.bench.training.record import load_comparison
from acf.errors import AcfError, FileError


def test_sizes_override_those_of_the_task() -> None:
    spec = TrainingOptions(task="resnet18", width=32, batch=64).spec
    assert (spec.width, spec.batch, spec.rate) == (32, 64, 0.4)


def test_a_gpt_may_have_another_depth_context_and_vocabulary() -> None:
    spec = TrainingOptions(task="gpt", layers=4, context=128, vocabulary=4096).spec
    assert (spec.layers, spec.context, spec.vocabulary, spec.width) == (4, 128, 4096, 1024)


def test_a_run_is_twelve_epochs_unless_something_is_said() -> None:
    assert TrainingOptions().length.epochs == 12.0
    assert TrainingOptions(steps=5).length.steps == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TrainingOptions(task="imagenet"), "task 'imagenet' is not one of resnet18"),
        (TrainingOptions(epochs=1, seconds=2), "epochs and seconds are both given"),
        (TrainingOptions(variants="dense,densest"), "method 'densest' begins with none of"),
        (TrainingOptions(variants="dense,dense/layers=2"), "layers in variant .* is a GPT's, and resnet18 has none"),
        (TrainingOptions(variants=" , "), "--variants names none"),
        (TrainingOptions(attention="flash"), "--attention flash is a GPT's"),
        (TrainingOptions(context=64), "--context 64 is a GPT's, and resnet18 has none; leave it out"),
        (TrainingOptions(dtype="float16"), "dtype 'float16' is not one of float32, bfloat16; use one of these"),
        (TrainingOptions(tune_rates=(0.0,)), "not above 0"),
        (TrainingOptions(device="tpu"), "device 'tpu' is not one of auto, cpu, cuda"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_data_is_read(options: TrainingOptions, message: str) -> None:
    with pytest.raises(AcfError, match=message):
        run_training_bench(options, lambda what, share: None)


def test_variants_of_a_gpu_are_not_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "choose_device", lambda name: "cuda")
    with pytest.raises(AcfError, match=r"--interleaved is for a CPU: memory on a GPU is measured run by run; leave"):
        run_training_bench(TrainingOptions(interleaved=True), lambda what, share: None)


def test_a_plot_is_an_svg_file() -> None:
    with pytest.raises(FileError, match=r"does not end in \.svg"):
        TrainingOptions(plot=Path("runs.png"))


def test_the_command_is_kept_without_paths() -> None:
    options = TrainingOptions(task="gpt", seconds=60.0, tune_rates=(0.2, 0.4), data=Path("secret"), out=Path("x.json"))
    assert options.command == "acf bench training --task gpt --seconds 60.0 --tune-rates 0.2,0.4"
    assert TrainingOptions(steps=9, compiled=True).command == "acf bench training --steps 9 --compiled"
    assert TrainingOptions(steps=9, interleaved=True).command == "acf bench training --steps 9 --interleaved"


def test_records_are_shown_and_merged_without_training(tmp_path: Path) -> None:
    published = Path(__file__).parents[3] / "docs" / "results" / "training-resnet18-blocks64.json"
    copy, out = tmp_path / "copy.json", tmp_path / "merged.json"
    copy.write_bytes(published.read_bytes())
    options = TrainingOptions(render=(copy, published), out=out)
    comparison = run_training_bench(options, lambda what, share: pytest.fail("something was trained"))
    assert len(comparison.runs) == 9
    assert load_comparison(out) == comparison
    assert (tmp_path / "copy.svg").read_text().startswith("<svg")
