"""The simulator's benchmark: the right network, streamed layer by layer."""

from pathlib import Path

import pytest

from acf.bench.simulators import resnet50_layers, resnet50_steps, run_simulator_bench, time_traces


def test_the_benchmark_network_is_resnet_50() -> None:
    layers = resnet50_layers()
    # 25,557,032 parameters, of which 53,120 belong to batch normalisation and 1,000 are the classifier's bias
    weights = sum(layer.in_channels * layer.out_channels * layer.kernel**2 for layer in layers.values())
    assert weights == 25_557_032 - 53_120 - 1_000
    # 4.09 GMAC per image
    forward = sum(
        layer.in_channels * layer.out_channels * layer.kernel**2 * layer.shape.output_map[0] ** 2
        for layer in layers.values()
    )
    assert forward == pytest.approx(4.09e9, rel=0.005)


def test_a_step_has_three_passes_but_no_gradient_of_the_data() -> None:
    steps = resnet50_steps(batch=1)
    assert [op.phase for op in next(steps).ops] == ["forward", "weight_grad"]
    assert [op.phase for op in next(steps).ops] == ["forward", "weight_grad", "input_grad"]


def test_timing_counts_the_dense_products() -> None:
    steps = resnet50_steps(batch=1)
    next(steps)
    timing = time_traces("one layer", iter([next(steps)]))
    assert timing.dense_macs == 3 * 56 * 56 * 64 * 64
    assert timing.to_dict()["macs_per_s"] == pytest.approx(timing.dense_macs / timing.seconds)


def test_the_benchmark_times_growing_batches_the_whole_step_and_captured_traces(tmp_path: Path) -> None:
    captured = next(resnet50_steps(batch=1))
    captured.label = "captured"
    captured.save(tmp_path / "step.safetensors")
    paths = [tmp_path / "step.safetensors"]
    timings = {timing.name: timing for timing in run_simulator_bench(lambda *_: None, resnet_batch=1, captured=paths)}
    assert timings["captured"].dense_macs == captured.dense_macs
    forward = [timings[f"VGG 512 filters, forward, batch {batch}"].dense_macs for batch in (8, 16, 32)]
    assert forward == [8 * 14**2 * 9 * 512**2 * times for times in (1, 2, 4)]
    step = timings["ResNet-50 step, batch 1, 224x224"]
    stem = 112**2 * 49 * 3 * 64
    # Three passes of 4.09 GMAC without the stem's input gradient; strides count a little differently at the borders.
    assert step.dense_macs == pytest.approx(3 * 4.09e9 - stem, rel=0.02)
