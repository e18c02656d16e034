"""Compiling the kernels that a bench will time, in parallel, and the random problems they are compiled and timed on."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import torch
from torch import Tensor

from acf.bench.kernels.steps import STEP_BLOCKS
from acf.bench.kernels.training_step import STEP_MODELS, STEP_SPARSITY
from acf.ops import Conv2dGeometry
from acf.ops.mlp import packed_slopes
from acf.ops.triton import conv, mlp, product, weight_grad
from acf.ops.triton.configs import (
    WARP_SPECIALISED_PRODUCT,
    conv_product_configs,
    conv_weight_grad_configs,
    product_configs,
    weight_grad_configs,
)
from acf.ops.triton.pixels import ConvProblem
from acf.ops.triton.warp_specialised import has_warp_specialisation
from acf.sparse import BlockLayout, BlockTopology

CONV_BLOCKS = (128, 64, 32)
THREE_BY_THREE = Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1))


def random_topology(rows: int, cols: int, block: int, density: float, seed: int = 1) -> BlockTopology:
    """Blocks drawn uniformly, slots in random order, on the GPU."""
    count = max(1, round(density * rows * cols))
    chosen = torch.randperm(rows * cols, generator=torch.Generator().manual_seed(seed))[:count]
    topology = BlockTopology.build(BlockLayout(rows * block, cols * block, block, block), chosen // cols, chosen % cols)
    return BlockTopology(*(tensor.cuda() for tensor in topology))


def random_tensor(*shape: int) -> Tensor:
    """bf16 normal numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def compile_linear(block: int, shape: tuple[int, int], density: float, part: int, parts: int) -> int:
    """Compile one part of the configurations of a linear layer ``(outputs, inputs)``; the disk cache shares them."""
    topology = random_topology(shape[0] // block, shape[1] // block, block, density)
    gradient, x = random_tensor(256, shape[0]), random_tensor(256, shape[1])
    weight = random_tensor(topology.block_rows.numel(), block, block)
    has = has_warp_specialisation(x.get_device())
    jobs: list[Callable[[], object]] = [
        partial(product.launch_product, config, operand, weight, out, topology, forward)
        for config in product_configs(block, 2, "tf32", has)
        for operand, out, forward in ((x, gradient.clone(), True), (gradient, x.clone(), False))
    ]
    jobs += [
        partial(weight_grad.launch_weight_grad, config, gradient, x, torch.empty_like(weight), topology)
        for config in weight_grad_configs(block, 2, "tf32", weight_grad.split_choices(len(weight)))
    ]
    for config in mlp.epilogue_configs(block, 2, "tf32"):
        if shape[0] >= shape[1]:  # the first layer of an MLP
            outs = torch.empty_like(gradient), torch.empty_like(gradient)
            jobs.append(partial(mlp.launch_activation, config, x, weight, None, outs, topology, "gelu"))
        if shape[0] <= shape[1]:  # the second
            out = torch.empty_like(x)
            jobs.append(partial(mlp.launch_scaled, config, gradient, weight, x, out, topology))
    if has and block in WARP_SPECIALISED_PRODUCT:
        config, slope = WARP_SPECIALISED_PRODUCT[block], packed_slopes(x, max(shape), block)
        if shape[0] >= shape[1]:
            results = torch.empty_like(gradient), slope
            jobs.append(partial(mlp.launch_activation, config, x, weight, None, results, topology, "gelu"))
        if shape[0] <= shape[1]:
            jobs.append(partial(mlp.launch_scaled, config, gradient, weight, slope, torch.empty_like(x), topology))
    for job in jobs[part::parts]:
        job()
    torch.cuda.synchronize()
    return len(jobs[part::parts])


def compile_conv(block: int, size: int) -> int:
    """Compile the convolution configurations of a block size and an image size."""
    channels = 2 * block
    topology = random_topology(2, 18, block, 0.5)
    problem = ConvProblem.build([64, channels, size, size], [64, channels, size, size], THREE_BY_THREE)
    pixels, weight = random_tensor(64 * size * size, channels), random_tensor(topology.block_rows.numel(), block, block)
    out, weight_out = torch.empty_like(pixels), torch.empty_like(weight)
    for config in conv_product_configs(block, 2, "tf32", True):
        conv.launch_conv_forward(config, pixels, weight, out, topology, problem)
        conv.launch_conv_input_grad(config, pixels, weight, out, topology, problem)
    for config in conv_weight_grad_configs(block, 2, "tf32", True, (1, 8)):
        conv.launch_conv_weight_grad(config, pixels, pixels, weight_out, topology, problem)
    torch.cuda.synchronize()
    return 1


def precompile(steps: bool) -> None:
    """Compile every configuration in parallel processes: the timings afterwards find all kernels in Triton's cache.

    The kernels of whole training steps, whose layers have other shapes, only where ``steps`` will be timed.
    """
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(compile_linear, block, (8 * block, 8 * block), 0.5, part, parts)
            for block, parts in ((128, 4), (64, 4), (32, 2), (16, 2))
            for part in range(parts)
        ]
        jobs += [pool.submit(compile_conv, block, size) for block in CONV_BLOCKS for size in (14, 28)]
        if steps:
            jobs += [
                pool.submit(compile_linear, block, shape, 1 - STEP_SPARSITY, part, 2)
                for block in STEP_BLOCKS
                for model in STEP_MODELS
                for shape in model.weight_shapes
                for part in range(2)
            ]
        for job in jobs:
            job.result()
