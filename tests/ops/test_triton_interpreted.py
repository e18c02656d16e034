"""The Triton kernels agree with the reference. They run in Triton's interpreter, so no GPU is needed.

The interpreter must be chosen before Triton is imported, so the tests run in a process of their own: without
``TRITON_INTERPRET`` this file has one test, which runs the file again with it.
"""

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from acf.ops import Conv2dGeometry, reference
from acf.ops.semi_structured.product import reference_prune
from acf.sparse import BlockLayout, BlockTopology

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed (it comes with CUDA builds of torch)", allow_module_level=True)

if not INTERPRETING:

    def test_kernels_agree_with_the_reference_in_the_interpreter() -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "ACF_AUTOTUNE": "0"}
        for name in [name for name in environment if name.startswith("PYTEST_")]:
            del environment[name]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr

    def test_importing_the_package_does_not_import_triton() -> None:
        code = "import sys, acf.ops.triton; assert 'acf.ops.triton.product' not in sys.modules"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

else:
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    from acf.ops import expert_loop
    from acf.ops.activation import ACTIVATIONS
    from acf.ops.mlp import input_grad_then_scale, linear_then_activation
    from acf.ops.triton import (
        bias_grad,
        conv,
        experts,
        gated,
        mlp,
        norms,
        product,
        prune,
        warp_specialised_kernels,
        weight_grad,
    )
    from acf.ops.triton.configs import (
        conv_product_configs,
        conv_weight_grad_configs,
        gated_configs,
        pair_configs,
        product_configs,
        weight_grad_configs,
    )
    from acf.ops.triton.jit import jit
    from acf.ops.triton.mlp_kernels import value_and_slope
    from acf.ops.triton.pixels import ConvProblem, pixel_box
    from acf.ops.triton.transpose import transposed
    from acf.ops.triton.tuning import LaunchConfig

    BLOCK_SIZES = (16, 32, 64, 128)
    TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3}
    PADDED = Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1))
    UNEVEN = Conv2dGeometry((3, 2), (2, 1), (1, 0), (1, 2))
    POINTWISE = Conv2dGeometry((1, 1), (2, 2))
    STRIDED = [Conv2dGeometry((3, 3), (2, 2), (1, 1)), Conv2dGeometry((3, 4), (2, 3), (2, 1), (1, 2))]

    @jit
    def activation_probe_kernel(
        x: tl.tensor,
        value: tl.tensor,
        slope: tl.tensor,
        width: tl.constexpr,
        activation: tl.constexpr,
        short: tl.constexpr,
    ) -> None:
        """The activation of every element and its slope."""
        place = tl.arange(0, width)
        height, rise = value_and_slope(tl.load(x + place), activation, short)
        tl.store(value + place, height)
        tl.store(slope + place, rise)


@pytest.fixture(autouse=True)
def _interpreter_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter lacks two things: NumPy 2.4's stricter scalars, and products of bfloat16."""
    if INTERPRETING:
        patch_tensor, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

        def patched(tensor: Any, scope: Any) -> None:
            patch_tensor(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
            scope.set_attr(tensor, "__bool__", lambda self: bool(self.handle.data.all()))

        def widened(handle: Any) -> Any:
            if handle.dtype.scalar != tl.bfloat16:
                return handle
            return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

        monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)
        monkeypatch.setattr(
            interpreter.InterpreterBuilder,
            "create_dot",
            lambda self, a, b, *rest: dot(self, widened(a), widened(b), *rest),
        )


def random_topology(rows: int, cols: int, block: int, kind: str = "mixed") -> BlockTopology:
    """Slots in random order: an empty and a full row among random ones, or one block only, or all."""
    mask = torch.rand(rows, cols) < 0.4
    mask[0], mask[-1] = False, True
    if kind == "one block":
        mask = torch.zeros(rows, cols, dtype=torch.bool)
        mask[rows // 2, cols // 2] = True
    if kind == "all blocks":
        mask = torch.ones(rows, cols, dtype=torch.bool)
    chosen = torch.nonzero(mask)[torch.randperm(int(mask.sum()))]
    return BlockTopology.build(BlockLayout(rows * block, cols * block, block, block), chosen[:, 0], chosen[:, 1])


def poisoned(*shape: int, dtype: torch.dtype) -> Tensor:
    """NaN everywhere: an element that no program writes shows."""
    return torch.full(shape, float("nan"), dtype=dtype)


def assert_close(result: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Relative error of the Frobenius norm, in float64; NaN never passes."""
    norm = expected.double().norm()
    error = (result.double() - expected.double()).norm() / norm
    assert error < TOLERANCE[dtype], f"relative error {error:.2e}"


def small(config: "LaunchConfig", block: int) -> "LaunchConfig":
    """The configuration with tiles small enough for the interpreter; what it computes is the same."""
    return replace(config, tile=min(config.tile, 32), depth=min(config.depth, 32, block))


def distinct(configs: tuple["LaunchConfig", ...], block: int) -> list["LaunchConfig"]:
    """The different computations among ``configs``: warps and stages mean nothing to the interpreter."""
    return list(dict.fromkeys(replace(small(config, block), warps=4, stages=3) for config in configs))


def fused_or_exact(configs: tuple["LaunchConfig", ...], block: int, dtype: torch.dtype) -> list["LaunchConfig"]:
    """`distinct` without separate products in 16 bits: what they store between them is truncated in the interpreter."""
    return [each for each in distinct(configs, block) if dtype == torch.float32 or each.kernel != "separate"]


if INTERPRETING:

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("block", BLOCK_SIZES)
    @pytest.mark.parametrize("forward", [True, False], ids=["forward", "input_grad"])
    def test_products_agree_with_the_reference(block: int, dtype: torch.dtype, forward: bool) -> None:
        topology = random_topology(4, 3, block)
        weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
        x = torch.randn(37, (3 if forward else 4) * block).to(dtype)
        meaning = reference.linear if forward else reference.linear_input_grad
        expected = meaning(x.double(), weight.double(), topology)
        bias = torch.randn(4 * block)
        for config in distinct(product_configs(block, 2, "tf32"), block):
            out = poisoned(*expected.shape, dtype=dtype)
            product.launch_product(config, x, weight, out, topology, forward)
            assert_close(out, expected, dtype)
            if forward:
                product.launch_product(config, x, weight, out, topology, True, bias)
                assert_close(out, expected + bias, dtype)

    @pytest.mark.parametrize(
        ("block", "dtype", "offsets"),
        [
            (16, torch.float32, [0, 37, 37, 42]),  # no multiple of a tile, and an expert without tokens
            (16, torch.bfloat16, [0, 0, 70, 70]),  # all tokens to one expert
            (32, torch.bfloat16, [0, 3, 5, 20]),  # and rows of no expert after them
        ],
    )
    def test_products_of_experts_agree_with_the_loop(block: int, dtype: torch.dtype, offsets: list[int]) -> None:
        flat = random_topology(6, 3, block)
        layout = BlockLayout(6 * block, 3 * block, block, block, stacked=3)
        topology = BlockTopology.build(layout, flat.block_rows, flat.block_cols)
        bounds, tokens = torch.tensor(offsets, dtype=torch.int32), offsets[-1] + (5 if offsets[1] == 3 else 0)
        weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
        x, output_grad = (torch.randn(tokens, width * block).to(dtype) for width in (3, 2))
        for forward, operand in ((True, x), (False, output_grad)):
            meaning = expert_loop.linear if forward else expert_loop.input_grad
            one_matrix = reference.linear if forward else reference.linear_input_grad
            expected = meaning(operand.double(), weight.double(), topology, bounds, one_matrix)
            configs = distinct(experts.expert_product_configs(block, 2, "tf32"), block)
            for config in [*configs, replace(configs[0], swap=True)]:
                out = poisoned(*expected.shape, dtype=dtype)
                experts.launch_product(config, operand, weight, out, topology, bounds, forward)
                assert_close(out, expected, dtype)
        gradient = expert_loop.weight_grad(
            output_grad.double(), x.double(), topology, bounds, reference.linear_weight_grad
        )
        configs = distinct(experts.expert_weight_grad_configs(block, 2, "tf32"), block)
        for config in [*configs, *(replace(config, swap=True, pack=2) for config in configs[:2])]:
            out = poisoned(*gradient.shape, dtype=dtype)
            owners = experts.owners_of(topology, config.by_input)
            experts.launch_weight_grad(config, (output_grad, x), out, owners, bounds)
            assert_close(out, gradient, dtype)

    @pytest.mark.parametrize("out_blocks", [1, 4], ids=["by column", "by row"])
    def test_gradient_norms_of_experts_agree_with_the_loop(out_blocks: int) -> None:
        rows, cols = (each.int() for each in torch.nonzero(torch.ones(3 * out_blocks, 2)).T)
        x, output_grad = torch.randn(20, 32), torch.randn(20, out_blocks * 16)
        bounds = torch.tensor([0, 13, 13, 20], dtype=torch.int32)
        expected = expert_loop.gradient_norms(output_grad, x, (rows, cols), bounds, (16, 16), reference.gradient_norms)
        norms_found = experts.experts_gradient_norms(output_grad, x, rows, cols, bounds, [16, 16])
        torch.testing.assert_close(norms_found, expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize(("block", "with_bias"), [(32, True), (64, False), (128, True)])
    def test_a_product_can_leave_gelu_and_slope(block: int, with_bias: bool, dtype: torch.dtype) -> None:
        topology = random_topology(4, 3, block)
        weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype) / block**0.5
        x, bias = torch.randn(37, 3 * block).to(dtype), torch.randn(4 * block).to(dtype)
        hidden = reference.linear(x.double(), weight.double(), topology) + (bias.double() if with_bias else 0.0)
        hidden.requires_grad_()
        expected = torch.nn.functional.gelu(hidden)
        (expected_slope,) = torch.autograd.grad(expected.sum(), hidden)
        for config in distinct(mlp.epilogue_configs(block, 2, "tf32"), block):
            activated, slope = (poisoned(*hidden.shape, dtype=dtype) for _ in range(2))
            shift, results = bias if with_bias else None, (activated, slope)
            mlp.launch_activation(config, x, weight, shift, results, topology, "gelu")
            assert_close(activated, expected.detach(), dtype)
            assert_close(slope, expected_slope, dtype)

    @pytest.mark.parametrize(
        ("block", "activation", "with_bias", "dtype"),
        [
            (32, "silu", True, torch.bfloat16),
            (32, "relu", True, torch.float32),
            (64, "gelu_tanh", False, torch.bfloat16),
        ],
    )
    def test_a_gated_pair_agrees_with_torch(block: int, activation: str, with_bias: bool, dtype: torch.dtype) -> None:
        topologies = random_topology(4, 3, block), random_topology(4, 3, block)
        weights = tuple(
            torch.randn(topology.block_rows.numel(), block, block).to(dtype) / block**0.5 for topology in topologies
        )
        biases = [torch.randn(4 * block) if with_bias else None for _ in weights]
        x = torch.randn(37, 3 * block).to(dtype)
        gate, up = (
            reference.linear(x.double(), weight.double(), topology) + (0.0 if bias is None else bias.double())
            for weight, topology, bias in zip(weights, topologies, biases, strict=True)
        )
        value, slope = ACTIVATIONS[activation](gate)
        for config in fused_or_exact(gated_configs(block, 2), block, dtype):
            for factors in (True, False) if block == 32 else (True,):
                results = [poisoned(*gate.shape, dtype=dtype) for _ in range(3)]
                gated.launch_gated(config, x, weights, biases, results, topologies, (activation, factors))
                assert_close(results[0], value * up, dtype)
                assert results[1].isnan().all() == (not factors)  # nothing is stored that no backward pass will read
                if factors:
                    assert_close(results[1], slope * up, dtype)
                    assert_close(results[2], value, dtype)

    @pytest.mark.parametrize(("block", "dtype"), [(32, torch.float32), (64, torch.bfloat16)])
    def test_gradients_of_a_gated_pair_agree_with_the_reference(block: int, dtype: torch.dtype) -> None:
        topologies = random_topology(4, 3, block), random_topology(4, 3, block)
        weights = tuple(torch.randn(each.block_rows.numel(), block, block).to(dtype) for each in topologies)
        gradients = tuple(torch.randn(37, 4 * block).to(dtype) for _ in range(2))
        factors = tuple(torch.randn(37, 3 * block).to(dtype) for _ in range(2))
        inputs = [
            reference.linear_input_grad(gradient.double(), weight.double(), topology)
            for gradient, weight, topology in zip(gradients, weights, topologies, strict=True)
        ]
        for config in fused_or_exact(pair_configs(block, 2), block, dtype):
            out = poisoned(37, 3 * block, dtype=dtype)
            gated.launch_pair_input_grad(config, gradients, weights, out, topologies)
            assert_close(out, inputs[0] + inputs[1], dtype)
            scaled = (torch.empty_like(out), torch.empty_like(out))
            gated.launch_gated_input_grad(config, gradients[0], weights[0], factors, scaled, topologies[0])
            for result, factor in zip(scaled, factors, strict=True):
                assert_close(result, inputs[0] * factor.double(), dtype)

    def test_a_gated_pair_that_no_kernel_takes_runs_product_by_product() -> None:
        topology = random_topology(2, 2, 16)
        weight = torch.randn(topology.block_rows.numel(), 16, 16, dtype=torch.float64)
        x = torch.randn(5, 32, dtype=torch.float64)
        results = gated.linear_gated(x, weight, weight, None, None, "silu", True, topology, topology)
        hidden = reference.linear(x, weight, topology)
        torch.testing.assert_close(results[0], torch.nn.functional.silu(hidden) * hidden)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("block", [32, 64, 128])
    def test_an_input_gradient_can_be_scaled_on_its_way_out(block: int, dtype: torch.dtype) -> None:
        topology = random_topology(4, 3, block)
        weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
        output_grad, scale = torch.randn(37, 4 * block).to(dtype), torch.randn(37, 3 * block).to(dtype)
        expected = reference.linear_input_grad(output_grad.double(), weight.double(), topology) * scale.double()
        for config in distinct(mlp.epilogue_configs(block, 2, "tf32"), block):
            out = poisoned(*expected.shape, dtype=dtype)
            mlp.launch_scaled(config, output_grad, weight, scale, out, topology)
            assert_close(out, expected, dtype)

    @pytest.mark.parametrize(("short", "tolerance"), [(False, 5e-7), (True, 1e-4)])
    def test_the_gelu_is_as_exact_as_its_results_are_kept(short: bool, tolerance: float) -> None:
        x = torch.linspace(-9, 9, 4096)
        x[:5] = torch.tensor([float("inf"), -float("inf"), float("nan"), 300.0, -300.0])
        value, slope = torch.empty_like(x), torch.empty_like(x)
        with np.errstate(invalid="ignore", over="ignore"):
            activation_probe_kernel[(1,)](x, value, slope, width=4096, activation="gelu", short=short)
        before = x.double().requires_grad_()
        expected = torch.nn.functional.gelu(before)
        (expected_slope,) = torch.autograd.grad(expected.sum(), before)
        torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-7, atol=tolerance, equal_nan=True)
        torch.testing.assert_close(slope.double(), expected_slope, rtol=1e-7, atol=tolerance, equal_nan=True)
        inside = (before.detach() > -5) & (before.detach() < 0)
        relative = (value.double() / expected.detach() - 1)[inside].abs()
        assert float(relative.max()) < (2e-4 if short else 4e-4)

    @pytest.mark.parametrize("activation", ["gelu_tanh", "silu", "relu"])
    def test_an_activation_and_its_slope_are_those_of_torch(activation: str) -> None:
        x = torch.linspace(-9, 9, 4096)
        x[:3] = torch.tensor([float("nan"), 80.0, -80.0])
        value, slope = torch.empty_like(x), torch.empty_like(x)
        with np.errstate(invalid="ignore", over="ignore"):
            activation_probe_kernel[(1,)](x, value, slope, width=4096, activation=activation, short=True)
        before = x.double().requires_grad_()
        functions = {
            "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
            "silu": torch.nn.functional.silu,
        }
        expected = functions.get(activation, torch.relu)(before)
        (expected_slope,) = torch.autograd.grad(expected.sum(), before)
        torch.testing.assert_close(value.double(), expected.detach(), rtol=1e-6, atol=1e-6, equal_nan=True)
        torch.testing.assert_close(slope.double(), expected_slope, rtol=1e-6, atol=1e-6, equal_nan=True)
        assert bool((slope[1:] > -0.13).all())
        assert bool((slope[1:] < 1.13).all())

    @pytest.mark.parametrize("activation", ["gelu_tanh", "silu", "relu"])
    def test_a_product_can_leave_any_activation_and_its_slope(activation: str) -> None:
        topology = random_topology(4, 3, 32)
        weight = torch.randn(topology.block_rows.numel(), 32, 32) / 32**0.5
        x, bias = torch.randn(37, 96), torch.randn(128)
        hidden = reference.linear(x.double(), weight.double(), topology, bias.double())
        results = mlp.linear_activation(x, weight, bias, activation, False, *topology)
        for result, expected in zip(results, ACTIVATIONS[activation](hidden), strict=True):
            assert_close(result, expected, torch.float32)

    @pytest.mark.parametrize("block", [16, 20, 64])
    def test_the_gelu_of_any_block_size_is_that_of_the_plain_ops(block: int) -> None:
        topology = random_topology(3, 2, block)
        weight, x = torch.randn(topology.block_rows.numel(), block, block), torch.randn(5, 2 * block)
        results = mlp.linear_activation(x, weight, None, "gelu", False, *topology)
        for result, expected in zip(
            results, linear_then_activation(x, weight, None, "gelu", False, *topology), strict=True
        ):
            assert_close(result, expected, torch.float32)
        output_grad, scale = torch.randn(5, 3 * block), torch.randn(5, 2 * block)
        result = mlp.linear_scaled_input_grad(output_grad, weight, scale, *topology)
        assert_close(result, input_grad_then_scale(output_grad, weight, scale, *topology), torch.float32)

    def test_packing_several_blocks_into_one_step_changes_nothing() -> None:
        topology = random_topology(5, 7, 16)
        weight = torch.randn(topology.block_rows.numel(), 16, 16)
        x = torch.randn(20, 7 * 16)
        expected = reference.linear(x.double(), weight.double(), topology)
        for kernel in ("descriptor", "gather"):
            out = poisoned(*expected.shape, dtype=torch.float32)
            config = LaunchConfig(kernel, tile=16, depth=16, pack=4)
            product.launch_product(config, x, weight, out, topology, True)
            assert_close(out, expected, torch.float32)

    # Blocks of 16 and 128 have every kind of kernel between them.
    @pytest.mark.parametrize(
        ("block", "dtype"),
        [*((block, torch.bfloat16) for block in BLOCK_SIZES), (16, torch.float32), (128, torch.float32)],
    )
    def test_weight_gradients_agree_with_the_reference(block: int, dtype: torch.dtype) -> None:
        topology = random_topology(3, 3, block)
        x, output_grad = (torch.randn(37, 3 * block).to(dtype) for _ in range(2))
        expected = reference.linear_weight_grad(output_grad.double(), x.double(), topology)
        for config in distinct(weight_grad_configs(block, 2, "tf32", (1, 2)), block):
            if config.splits == 1:
                out = poisoned(*expected.shape, dtype=dtype)
                weight_grad.launch_weight_grad(config, output_grad, x, out, topology)
                assert_close(out, expected, dtype)
            out, bias = poisoned(*expected.shape, dtype=dtype), poisoned(3 * block, dtype=torch.float32)
            weight_grad.launch_weight_grad(config, output_grad, x, out, topology, bias)
            assert_close(out, expected, dtype)
            assert_close(bias, output_grad.double().sum(0), torch.float32)

    @pytest.mark.parametrize("shape", [(1, 16), (37, 200), (1000, 48)], ids=str)
    def test_a_bias_gradient_is_the_sum_over_tokens(shape: tuple[int, int]) -> None:
        output_grad = torch.randn(shape).bfloat16()
        for dtype in (torch.float32, torch.bfloat16):
            result = bias_grad.bias_grad(output_grad, dtype)
            assert result.dtype == dtype
            assert_close(result, output_grad.double().sum(0), dtype)

    def test_a_bias_gradient_of_images_is_the_sum_over_pixels_in_either_memory_format() -> None:
        images = torch.randn(3, 24, 5, 4)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            result = bias_grad.bias_grad(images.contiguous(memory_format=memory_format), torch.float32)
            assert_close(result, images.double().sum((0, 2, 3)), torch.float32)

    @pytest.mark.parametrize("bias_dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_ops_add_a_bias_of_any_dtype_and_leave_its_gradient(bias_dtype: torch.dtype) -> None:
        topology = random_topology(4, 3, 16)
        weight = torch.randn(topology.block_rows.numel(), 16, 16).bfloat16()
        x, output_grad = torch.randn(37, 48).bfloat16(), torch.randn(37, 64).bfloat16()
        bias = torch.randn(64).to(bias_dtype)
        for _ in range(2):  # a first and a known problem
            y = product.linear(x, weight, bias, *topology)
            expected = reference.linear(x.double(), weight.double(), topology, bias.double())
            assert_close(y, expected, x.dtype)
            gradient, sums = weight_grad.linear_weight_and_bias_grad(output_grad, x, *topology, x.dtype, bias_dtype)
            assert_close(gradient, reference.linear_weight_grad(output_grad.double(), x.double(), topology), x.dtype)
            assert (gradient.dtype, sums.dtype) == (x.dtype, bias_dtype)
            exact = weight_grad.linear_weight_grad(output_grad, x, *topology, torch.float32)
            assert exact.dtype == torch.float32
            wide = reference.linear_weight_grad(output_grad.double(), x.double(), topology)
            assert_close(exact, wide, torch.float32)
            assert_close(sums, output_grad.double().sum(0), bias_dtype)

    @pytest.mark.parametrize("groups", [1, 5, 16])
    def test_a_schedule_starts_at_zero_and_has_large_groups_first(groups: int) -> None:
        counts = torch.randint(0, 4, (groups,))
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
        schedule = torch.full((groups + 1,), -1, dtype=torch.int32)
        warp_specialised_kernels.schedule_kernel[(1,)](offsets, schedule, groups, span=16)
        order = schedule[1:].long()
        assert schedule[0] == 0
        assert sorted(order.tolist()) == list(range(groups))
        assert bool((counts[order].diff() <= 0).all())

    @pytest.mark.parametrize("kind", ["one block", "all blocks"])
    @pytest.mark.parametrize("tokens", [1, 65])
    def test_ops_take_sparse_and_full_topologies_and_any_token_count(kind: str, tokens: int) -> None:
        topology = random_topology(3, 5, 16, kind)
        weight = torch.randn(topology.block_rows.numel(), 16, 16)
        x, output_grad = torch.randn(tokens, 80), torch.randn(tokens, 48)
        assert_close(product.linear(x, weight, None, *topology), reference.linear(x, weight, topology), x.dtype)
        assert_close(
            product.linear_input_grad(output_grad, weight, *topology),
            reference.linear_input_grad(output_grad, weight, topology),
            x.dtype,
        )
        assert_close(
            weight_grad.linear_weight_grad(output_grad, x, *topology, x.dtype),
            reference.linear_weight_grad(output_grad, x, topology),
            x.dtype,
        )

    def test_operands_that_are_not_contiguous_or_not_aligned_are_read_rightly() -> None:
        topology = random_topology(3, 2, 16)
        weight = torch.randn(16, 16, topology.block_rows.numel()).permute(2, 1, 0)
        transposed, misaligned = torch.randn(32, 21).T, torch.randn(1 + 21 * 32)[1:].view(21, 32)
        for x in (transposed, misaligned):
            assert_close(product.linear(x, weight, None, *topology), reference.linear(x, weight, topology), x.dtype)

    def test_other_blocks_and_float64_run_the_reference() -> None:
        for block, dtype in ((8, torch.float32), (16, torch.float64)):
            topology = random_topology(3, 2, block)
            weight = torch.randn(topology.block_rows.numel(), block, block, dtype=dtype)
            x = torch.randn(7, 2 * block, dtype=dtype)
            assert torch.equal(product.linear(x, weight, None, *topology), reference.linear(x, weight, topology))

    def test_a_nan_reaches_only_the_outputs_it_reaches_in_dense() -> None:
        topology = random_topology(4, 3, 16)
        weight = torch.randn(topology.block_rows.numel(), 16, 16)
        x = torch.randn(9, 48)
        x[4, 20] = float("nan")
        hit = torch.zeros(4, dtype=torch.bool)
        hit[topology.block_rows[topology.block_cols == 1].long()] = True
        result = product.linear(x, weight, None, *topology).isnan().view(9, 4, 16)
        assert torch.equal(result[4].all(1), hit)
        assert not result[torch.arange(9) != 4].any()

    @pytest.mark.parametrize("shape", [(1, 16), (128, 64), (130, 80)], ids=str)
    def test_a_transpose_is_padded_with_zeros(shape: tuple[int, int]) -> None:
        x = torch.randn(shape).bfloat16()
        result = transposed(x)
        assert result.shape[1] % 128 == 0
        assert torch.equal(result[:, : shape[0]], x.T)
        assert not result[:, shape[0] :].any()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("block", BLOCK_SIZES)
    def test_norms_agree_with_the_reference_by_tiles_groups_and_list(block: int, dtype: torch.dtype) -> None:
        x, output_grad = torch.randn(37, 3 * block).to(dtype), torch.randn(37, 5 * block).to(dtype)
        rows, cols = torch.nonzero(torch.rand(5, 3) < 0.6, as_tuple=True)
        shuffled = torch.randperm(len(rows))
        rows, cols = rows[shuffled].int(), cols[shuffled].int()
        expected = reference.gradient_norms(output_grad.double(), x.double(), rows, cols, (block, block))
        for result in (
            norms.norms_of_list(output_grad, x, rows, cols, block, None),
            norms.norms_of_groups(output_grad, x, rows, cols, block, None),
            norms.norms_of_groups(x, output_grad, cols, rows, block, None),
            norms.norms_by_tiles(output_grad, x, rows, cols, block),
        ):
            assert_close(result, expected, dtype)

    def test_a_candidate_list_is_computed_in_the_way_that_its_length_makes_cheapest() -> None:
        for block, lengths in ((16, (40, 9000, 600_000)), (64, (40, 3000, 15000))):
            ways = [norms.cheapest_way(length, block, 8192, (16384, 4096), 2) for length in lengths]
            assert ways == ["list", "groups", "tiles"]

    @pytest.mark.parametrize("geometry", [PADDED, UNEVEN, POINTWISE], ids=["padded", "uneven", "pointwise"])
    @pytest.mark.parametrize(("block", "dtype"), [(16, torch.float32), (32, torch.bfloat16)])
    def test_convolutions_agree_with_the_reference(block: int, dtype: torch.dtype, geometry: Conv2dGeometry) -> None:
        check_convolution(block, dtype, geometry, (5, 4))

    @pytest.mark.parametrize("geometry", STRIDED, ids=["3x3", "uneven and dilated"])
    def test_strided_convolutions_agree_with_the_reference_phase_by_phase(geometry: Conv2dGeometry) -> None:
        check_convolution(16, torch.bfloat16, geometry, (8, 6))

    def check_convolution(block: int, dtype: torch.dtype, geometry: Conv2dGeometry, size: tuple[int, int]) -> None:
        taps = geometry.taps
        topology = random_topology(3, 2 * taps, block)
        weight = torch.randn(topology.block_rows.numel(), block, block).to(dtype)
        x = torch.randn(2, 2 * block, *size).to(dtype).contiguous(memory_format=torch.channels_last)
        output_grad = torch.randn(2, 3 * block, *geometry.output_size(*size)).to(dtype)
        problem = ConvProblem.build(list(x.shape), list(output_grad.shape), geometry)
        source, flat = problem.pixels_of(x), problem.pixels_of(output_grad)
        wide, bias = (output_grad.double(), x.double(), weight.double()), torch.randn(3 * block)
        forward = problem.pixels_of(reference.conv2d(wide[1], wide[2], topology, geometry))
        backward = problem.pixels_of(reference.conv2d_input_grad(wide[0], wide[2], topology, list(x.shape), geometry))
        for number, config in enumerate(distinct(conv_product_configs(block, 2, "tf32", problem.boxed), block)):
            # The first is a descriptor kernel where the stride is 1, a gather kernel elsewhere.
            for added in (None, bias) if number == 0 else (bias,):
                out = poisoned(*flat.shape, dtype=dtype)
                conv.launch_conv_forward(config, source, weight, out, topology, problem, added)
                assert_close(out, forward if added is None else forward + added, dtype)
            out = poisoned(*source.shape, dtype=dtype)
            conv.launch_conv_input_grad(config, flat, weight, out, topology, problem)
            assert_close(out, backward, dtype)
        expected = reference.conv2d_weight_grad(wide[0], wide[1], topology, geometry)
        for config in distinct(conv_weight_grad_configs(block, 2, "tf32", problem.boxed, (1, 2)), block):
            out = poisoned(*weight.shape, dtype=dtype)
            conv.launch_conv_weight_grad(config, flat, source, out, topology, problem)
            assert_close(out, expected, dtype)
        found = expected.square().sum((1, 2)).sqrt()
        for computed in (
            norms.norms_of_list(flat, source, topology.block_rows, topology.block_cols, block, problem),
            norms.norms_of_groups(flat, source, topology.block_rows, topology.block_cols, block, problem),
            norms.conv_norms_by_tiles(flat, source, topology.block_rows, topology.block_cols, block, problem),
        ):
            assert_close(computed, found, dtype)

    def test_convolution_ops_keep_the_memory_format_of_their_input() -> None:
        topology = random_topology(2, 9, 16)
        weight = torch.randn(topology.block_rows.numel(), 16, 16)
        x = torch.randn(2, 16, 5, 4)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            given = x.contiguous(memory_format=memory_format)
            y = conv.conv2d(given, weight, None, *topology, *PADDED.as_lists())
            assert y.is_contiguous(memory_format=memory_format)
            assert_close(y, reference.conv2d(given, weight, topology, PADDED), x.dtype)

    def test_a_pointwise_convolution_is_a_linear_layer_over_its_pixels() -> None:
        geometry, topology = Conv2dGeometry((1, 1)), random_topology(3, 2, 16)
        weight, bias = torch.randn(topology.block_rows.numel(), 16, 16), torch.randn(48)
        x, output_grad = torch.randn(2, 32, 5, 4), torch.randn(2, 48, 5, 4)
        pairs = geometry.as_lists()
        y = conv.conv2d(x, weight, bias, *topology, *pairs)
        assert_close(y, reference.conv2d(x, weight, topology, geometry, bias), x.dtype)
        found = conv.conv2d_input_grad(output_grad, weight, *topology, list(x.shape), *pairs)
        assert_close(
            found, reference.conv2d_input_grad(output_grad, weight, topology, list(x.shape), geometry), x.dtype
        )
        found = conv.conv2d_weight_grad(output_grad, x, *topology, *pairs, torch.float32)
        assert_close(found, reference.conv2d_weight_grad(output_grad, x, topology, geometry), x.dtype)

    def test_a_pixel_box_covers_common_images_without_waste() -> None:
        assert pixel_box(128, 256, (28, 28)) == (8, 4, 4)
        assert pixel_box(64, 64, (56, 56)) == (1, 8, 8)

    @pytest.mark.parametrize("left_out", [False, True])
    @pytest.mark.parametrize("groups", ["inputs", "outputs", "tiles"])
    def test_a_pruned_weight_keeps_what_the_torch_masks_keep_and_breaks_ties_alike(groups: str, left_out: bool) -> None:
        for weight in (torch.randn(36, 68), torch.randint(-2, 3, (36, 68)).bfloat16()):
            arguments = (weight, groups, left_out, not left_out, weight.dtype)
            assert torch.equal(prune.prune(*arguments), reference_prune(*arguments))
