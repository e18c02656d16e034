"""The simulator's benchmark: a whole ResNet-50 step, streamed layer by layer."""

from pathlib import Path

import pytest

from acf.bench.simulators import resnet50_steps, run_simulator_bench, time_traces
from acf.lowering import dense_macs


def test_the_step_has_all_layers_of_resnet_50() -> None:
    names = [op.name for trace in resnet50_steps(batch=1) for op in trace.ops if op.phase == "forward"]
    assert len(names) == 53 + 1
    assert (names[0], names[-1]) == ("conv1", "fc")


def test_a_step_has_three_passes_but_no_gradient_of_the_data() -> None:
    steps = resnet50_steps(batch=1)
    assert [op.phase for op in next(steps).ops] == ["forward", "weight_grad"]
    assert [op.phase for op in next(steps).ops] == ["forward", "weight_grad", "input_grad"]


def test_timing_counts_the_dense_products() -> None:
    steps = resnet50_steps(batch=1)
    next(steps)
    timing = time_traces("one layer", iter([next(steps)]))
    assert timing.dense_macs == 3 * 56 * 56 * 64 * 64
    assert timing.processor_seconds > 0.0
    assert timing.to_dict()["macs_per_s"] == pytest.approx(timing.dense_macs / timing.seconds)


def test_the_benchmark_times_growing_batches_the_whole_step_and_captured_traces(tmp_path: Path) -> None:
    captured = next(resnet50_steps(batch=1))
    captured.label = "captured"
    captured.save(tmp_path / "step.safetensors")
    paths = [tmp_path / "step.safetensors"]
    timings = {timing.name: timing for timing in run_simulator_bench(lambda *_: None, resnet_batch=1, captured=paths)}
    assert timings["captured"].dense_macs == dense_macs(captured)
    forward = [timings[f"VGG 512 filters, forward, batch {batch}"].dense_macs for batch in (8, 16, 32)]
    assert forward == [8 * 14**2 * 9 * 512**2 * times for times in (1, 2, 4)]
    step = timings["ResNet-50 step, batch 1, 224x224"]
    stem = 112**2 * 49 * 3 * 64
    # Three passes of 4.09 GMAC without the stem's input gradient; strides count a little differently at the borders.
    assert step.dense_macs == pytest.approx(3 * 4.09e9 - stem, rel=0.02)
