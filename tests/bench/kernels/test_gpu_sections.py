"""The sections of the GPU bench that measure biases and narrow layers; the kernels themselves need a GPU."""

import importlib.util

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

from acf.bench.kernels import gpu, precompile
from acf.bench.kernels.bench import SECTIONS


def test_only_the_kernels_of_the_wanted_sections_are_compiled_ahead() -> None:
    jobs = {section: precompile.compile_jobs([section]) for section in SECTIONS}
    assert {function for function, _ in jobs["bias"]} == {precompile.compile_layer}
    assert {function for function, _ in jobs["conv"]} == {precompile.compile_conv}
    assert len(precompile.compile_jobs(["bias", "narrow"])) == len(jobs["bias"]) + len(jobs["narrow"])


@pytest.mark.parametrize("case", precompile.NARROW_CONVS, ids=lambda case: case.name)
def test_blocks_divide_the_channels_of_the_narrow_convolutions(case: precompile.ConvCase) -> None:
    for block in case.blocks:
        assert case.in_channels % block == case.out_channels % block == 0


def test_the_summary_gives_a_bias_beside_its_aim_and_a_narrow_layer_pass_by_pass() -> None:
    layer = {"outputs": 4096, "inputs": 11008, "with_over_without": 1.02, "aim": 1.05}
    record = {
        "bias": {"layers": [layer | {"ratio_with": 7.5, "ratio_without": 7.6}]},
        "narrow": [{"layer": "conv 1x1", "block": 64, "ratio": 1.2, "aim": 1.0, "ratio_by_pass": {"forward": 1.3}}],
    }
    bias, narrow = gpu.summary_lines(record)
    assert "1.020 of the time without, aim 1.05; 7.50x" in bias
    assert narrow == "conv 1x1 B=64 90%: 1.20x, aim 1.0 (forward 1.30x)"


def test_the_summary_gives_experts_pass_by_pass_and_2_4_layers_way_by_way() -> None:
    record = {
        "experts": [{"layer": "down", "block": 64, "ratio": 5.0, "ratio_by_pass": {"forward": 4.7}}],
        "two_four": [{"outputs": 4096, "inputs": 4096, "ratio": {"bdwp": 0.9}}],
    }
    assert gpu.summary_lines(record) == ["experts down B=64 90%: 5.00x (forward 4.70x)", "2:4 4096x4096: bdwp 0.90x"]
