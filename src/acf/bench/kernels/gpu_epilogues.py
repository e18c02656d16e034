"""Bias, bias gradient and activations in every kernel on a GPU against float64."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor

from acf.bench.kernels.gpu_correctness import TOLERANCE, ErrorLog, odd_topology, poisoned
from acf.ops import Conv2dGeometry, reference
from acf.ops.activation import ACTIVATIONS
from acf.ops.mlp import packed_slopes
from acf.ops.triton import bias_grad, conv, mlp, product, weight_grad
from acf.ops.triton.configs import (
    WARP_SPECIALISED_PRODUCT,
    conv_product_configs,
    product_configs,
    weight_grad_configs,
)
from acf.ops.triton.pixels import ConvProblem
from acf.ops.triton.support import BLOCK_SIZES
from acf.ops.triton.warp_specialised import has_warp_specialisation
from acf.processes import end_with_parent
from acf.sparse import BlockTopology


def epilogue_problem(block: int) -> tuple[BlockTopology, Tensor, Tensor, Tensor, Tensor]:
    """A topology with x, output gradient, weight (hidden values of order one) in bfloat16, and a bias in float32."""
    torch.manual_seed(block)
    topology = odd_topology(9, 7, block)
    x, gradient = (torch.randn(1000, n * block, device="cuda").bfloat16() for n in (7, 9))
    weight = torch.randn(topology.block_rows.numel(), block, block, device="cuda") / (2 * block) ** 0.5
    return topology, x, gradient, weight.bfloat16(), torch.randn(9 * block, device="cuda")


def check_bias_products(log: ErrorLog, block: int) -> None:
    """Every configuration of the product with a bias, and the op twice: a first and a prepared launch."""
    topology, x, _, weight, bias = epilogue_problem(block)
    expected = reference.linear(x.double(), weight.double(), topology, bias.double())
    for config in product_configs(block, 2, "tf32", has_warp_specialisation(x.get_device())):
        out = poisoned(*expected.shape, dtype=x.dtype)
        product.launch_product(config, x, weight, out, topology, True, bias)
        log.add("bias", out, expected, TOLERANCE[x.dtype])
    first, second = (product.linear(x, weight, bias, *topology) for _ in range(2))
    if not torch.equal(first, second):
        raise ArithmeticError(f"bias, blocks of {block}: a prepared launch differs from the first")


def check_bias_gradients(log: ErrorLog, block: int) -> None:
    """Every configuration of the weight gradient with the bias gradient beside it, and the column sums alone."""
    topology, x, gradient, weight, bias = epilogue_problem(block)
    expected, sums = reference.linear_weight_grad(gradient.double(), x.double(), topology), gradient.double().sum(0)
    for config in weight_grad_configs(block, 2, "tf32", (1, 4)):
        out, bias_out = poisoned(*weight.shape, dtype=x.dtype), poisoned(*bias.shape, dtype=bias.dtype)
        weight_grad.launch_weight_grad(config, gradient, x, out, topology, bias_out)
        log.add("weight gradient beside a bias gradient", out, expected, TOLERANCE[x.dtype])
        log.add("bias gradient", bias_out, sums, TOLERANCE[torch.float32])
    log.add("bias gradient", bias_grad.bias_grad(gradient, torch.float32), sums, TOLERANCE[torch.float32])
    pairs = [weight_grad.linear_weight_and_bias_grad(gradient, x, *topology, x.dtype, torch.float32) for _ in range(2)]
    if not all(torch.equal(first, second) for first, second in zip(*pairs, strict=True)):
        raise ArithmeticError(f"bias gradient, blocks of {block}: a prepared launch differs from the first")


def check_activations(log: ErrorLog, block: int) -> None:
    """Every activation in the first configuration and in the warp-specialised one, there and back."""
    configs = mlp.epilogue_configs(block, 2, "tf32")[:1]
    has = has_warp_specialisation(torch.cuda.current_device()) and block in WARP_SPECIALISED_PRODUCT
    configs += (WARP_SPECIALISED_PRODUCT[block],) if has else ()
    topology, x, _, weight, bias = epilogue_problem(block)
    back = odd_topology(7, 9, block)
    back_weight = torch.randn(back.block_rows.numel(), block, block, device="cuda").bfloat16()
    hidden = reference.linear(x.double(), weight.double(), topology, bias.double())
    backward = reference.linear_input_grad(x.double(), back_weight.double(), back)
    for config in configs:
        for activation, meaning in ACTIVATIONS.items():
            value, rise = meaning(hidden)
            activated = poisoned(*hidden.shape, dtype=x.dtype)
            packed = config.kernel == "warp-specialised"
            slope = packed_slopes(x, hidden.shape[1], block) if packed else torch.empty_like(activated)
            mlp.launch_activation(config, x, weight, bias, (activated, slope), topology, activation)
            log.add(f"{activation} by {config.kernel}", activated, value, TOLERANCE[x.dtype])
            out = poisoned(*hidden.shape, dtype=x.dtype)
            mlp.launch_scaled(config, x, back_weight, slope, out, back)
            log.add(f"gradient through {activation} by {config.kernel}", out, backward * rise, TOLERANCE[x.dtype])


def check_conv_bias(log: ErrorLog, block: int) -> None:
    """Every configuration of a convolution with a bias, strided or not."""
    torch.manual_seed(block)
    for geometry in (Conv2dGeometry((3, 3), padding=(1, 1)), Conv2dGeometry((1, 1), (2, 2))):
        topology, bias = odd_topology(3, 2 * geometry.taps, block), torch.randn(3 * block, device="cuda")
        weight = torch.randn(topology.block_rows.numel(), block, block, device="cuda").bfloat16()
        x = torch.randn(3, 2 * block, 13, 10, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
        expected = reference.conv2d(x.double(), weight.double(), topology, geometry, bias.double())
        problem = ConvProblem.build(list(x.shape), list(expected.shape), geometry)
        source, flat = problem.pixels_of(x), problem.pixels_of(expected)
        for config in conv_product_configs(block, 2, "tf32", problem.boxed):
            out = poisoned(*flat.shape, dtype=x.dtype)
            conv.launch_conv_forward(config, source, weight, out, topology, problem, bias)
            log.add("conv bias", out, flat, TOLERANCE[x.dtype])


EPILOGUE_CHECKS: dict[str, tuple[Callable[[ErrorLog, int], None], tuple[int, ...]]] = {
    "bias": (check_bias_products, BLOCK_SIZES),
    "bias gradient": (check_bias_gradients, BLOCK_SIZES),
    "activation": (check_activations, (32, 64, 128)),
    "conv bias": (check_conv_bias, (32, 64, 128)),
}


def check_epilogue(name: str, block: int) -> dict[str, float]:
    """One of `EPILOGUE_CHECKS` for one block size, in a process of its own."""
    log = ErrorLog()
    EPILOGUE_CHECKS[name][0](log, block)
    return log.largest


def check_epilogues() -> dict[str, float]:
    """Bias, bias gradient and activations in every kernel, in parallel processes; the largest error of each kind."""
    largest: dict[str, float] = {}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), end_with_parent) as pool:
        cases = [(name, block) for name, (_, blocks) in EPILOGUE_CHECKS.items() for block in blocks]
        for job in [pool.submit(check_epilogue, *case) for case in cases]:
            for name, error in job.result().items():
                largest[name] = max(largest.get(name, 0.0), error)
    print({name: f"{error:.1e}" for name, error in largest.items()}, flush=True)
    return largest
