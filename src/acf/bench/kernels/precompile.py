"""Compiling the kernels that a bench will time, in parallel, and the random problems they are compiled and timed on."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

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
from acf.processes import end_with_parent
from acf.sparse import BlockLayout, BlockTopology

CONV_BLOCKS = (128, 64, 32)
THREE_BY_THREE = Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1))


class ConvCase(NamedTuple):
    """A convolution over square images, and the blocks that it is measured with."""

    name: str
    in_channels: int
    out_channels: int
    size: int
    geometry: Conv2dGeometry
    blocks: tuple[int, ...]
    batch: int = 256


NARROW_TOKENS, NARROW_DENSITY = 32768, 0.1
NARROW_LINEAR = ((4096, 1024, 128), (4096, 1024, 64), (1024, 1024, 128), (1024, 1024, 64))
"""Outputs, inputs and block."""

NARROW_CONVS = (
    ConvCase("1x1 256->1024 at 14x14", 256, 1024, 14, Conv2dGeometry((1, 1)), (64, 32)),
    ConvCase("3x3/2 512 at 28x28", 512, 512, 28, Conv2dGeometry((3, 3), (2, 2), (1, 1)), (128, 64)),
    ConvCase("3x3 96->192 at 28x28", 96, 192, 28, THREE_BY_THREE, (32,)),
)
SHAPES_WITH_BIAS = ((4096, 11008), (12288, 4096), (8192, 28672))
"""Outputs and inputs of the layers that are measured with and without a bias."""


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


def compile_conv(case: ConvCase, block: int, density: float) -> int:
    """Compile the configurations of a convolution with one block size."""
    geometry, batch = case.geometry, case.batch
    columns = geometry.taps * case.in_channels // block
    topology = random_topology(case.out_channels // block, columns, block, density)
    in_shape = [batch, case.in_channels, case.size, case.size]
    out_shape = [batch, case.out_channels, *geometry.output_size(case.size, case.size)]
    problem = ConvProblem.build(in_shape, out_shape, geometry)
    x, gradient = (random_tensor(batch * shape[2] * shape[3], shape[1]) for shape in (in_shape, out_shape))
    weight = random_tensor(topology.block_rows.numel(), block, block)
    for config in conv_product_configs(block, 2, "tf32", problem.boxed):
        conv.launch_conv_forward(config, x, weight, torch.empty_like(gradient), topology, problem)
        conv.launch_conv_input_grad(config, gradient, weight, torch.empty_like(x), topology, problem)
    for config in conv_weight_grad_configs(block, 2, "tf32", problem.boxed, weight_grad.split_choices(len(weight))):
        conv.launch_conv_weight_grad(config, gradient, x, torch.empty_like(weight), topology, problem)
    torch.cuda.synchronize()
    return 1


def compile_layer(shape: tuple[int, int, int], density: float, with_bias: bool, part: int, parts: int) -> int:
    """Compile one part of the configurations of a linear layer (outputs, inputs, block), without and with a bias."""
    outputs, inputs, block = shape
    topology = random_topology(outputs // block, inputs // block, block, density)
    gradient, x = random_tensor(512, outputs), random_tensor(512, inputs)
    weight = random_tensor(topology.block_rows.numel(), block, block)
    bias = torch.randn(outputs, device="cuda")
    biases = (None, bias) if with_bias else (None,)
    jobs: list[Callable[[], object]] = []
    for config in product_configs(block, 2, "tf32", has_warp_specialisation(x.get_device())):
        jobs += [
            partial(product.launch_product, config, x, weight, gradient.clone(), topology, True, shift)
            for shift in biases
        ]
        jobs.append(partial(product.launch_product, config, gradient, weight, x.clone(), topology, False))
    for config in weight_grad_configs(block, 2, "tf32", weight_grad.split_choices(len(weight))):
        jobs += [
            partial(weight_grad.launch_weight_grad, config, gradient, x, torch.empty_like(weight), topology, shift)
            for shift in biases
        ]
    for job in jobs[part::parts]:
        job()
    torch.cuda.synchronize()
    return len(jobs[part::parts])


Job = tuple[Callable[..., int], tuple[Any, ...]]


def compile_jobs(sections: Sequence[str]) -> list[Job]:
    """What the timed ``sections`` of the bench will launch, as functions and their arguments."""
    jobs: list[Job] = []
    if {"layers", "norms", "overhead", "correctness", "steps"}.intersection(sections):
        jobs += [
            (compile_linear, (block, (8 * block, 8 * block), 0.5, part, parts))
            for block, parts in ((128, 4), (64, 4), (32, 2), (16, 2))
            for part in range(parts)
        ]
    if "conv" in sections:
        jobs += [
            (compile_conv, (ConvCase("", 2 * block, 2 * block, size, THREE_BY_THREE, (block,), 64), block, 0.5))
            for block in CONV_BLOCKS
            for size in (14, 28)
        ]
    if "steps" in sections:
        jobs += [
            (compile_linear, (block, shape, 1 - STEP_SPARSITY, part, 2))
            for block in STEP_BLOCKS
            for model in STEP_MODELS
            for shape in model.weight_shapes
            for part in range(2)
        ]
    if "bias" in sections:
        shapes = [(*shape, 128) for shape in SHAPES_WITH_BIAS]
        jobs += [(compile_layer, (shape, 0.1, True, part, 4)) for shape in shapes for part in range(4)]
    if "narrow" in sections:
        jobs += [(compile_layer, (shape, NARROW_DENSITY, False, part, 2)) for shape in NARROW_LINEAR for part in (0, 1)]
        jobs += [(compile_conv, (case, block, NARROW_DENSITY)) for case in NARROW_CONVS for block in case.blocks]
    return jobs


def precompile(sections: Sequence[str]) -> None:
    """Compile the kernels of ``sections`` in parallel processes: timings afterwards find all in Triton's cache."""
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), end_with_parent) as pool:
        for done in [pool.submit(function, *arguments) for function, arguments in compile_jobs(sections)]:
            done.result()
