"""Every kernel variant on a GPU against float64, and properties that only a GPU shows."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu as gelu_of

from acf.ops import Conv2dGeometry, reference
from acf.ops.mlp import packed_slopes
from acf.ops.triton import conv, mlp, norms, product, weight_grad
from acf.ops.triton.configs import (
    WARP_SPECIALISED_PRODUCT,
    conv_product_configs,
    conv_weight_grad_configs,
    product_configs,
    weight_grad_configs,
)
from acf.ops.triton.pixels import ConvProblem
from acf.ops.triton.support import BLOCK_SIZES, dot_precision
from acf.ops.triton.warp_specialised import has_warp_specialisation
from acf.processes import end_with_parent
from acf.sparse import BlockLayout, BlockTopology

TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}
TF32_TOLERANCE = 1e-3


class ErrorLog:
    """The largest relative error of each kind of check; raises at the first that is too large."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def add(self, name: str, result: Tensor, expected: Tensor, tolerance: float) -> None:
        """Compare in float64 by the Frobenius norm; a NaN never passes."""
        error = float((result.double() - expected.double()).norm() / expected.double().norm())
        self.largest[name] = max(self.largest.get(name, 0.0), error)
        if not error < tolerance:
            raise ArithmeticError(f"{name}: relative error {error:.2e}, allowed {tolerance:.0e}")


def odd_topology(rows: int, cols: int, block: int) -> BlockTopology:
    """A random topology with an empty row, a full row, and slots out of order, on the GPU."""
    mask = torch.rand(rows, cols) < 0.3
    mask[0], mask[1] = False, True
    chosen = torch.nonzero(mask)[torch.randperm(int(mask.sum()))]
    topology = BlockTopology.build(BlockLayout(rows * block, cols * block, block, block), chosen[:, 0], chosen[:, 1])
    return BlockTopology(*(tensor.cuda() for tensor in topology))


def poisoned(*shape: int, dtype: torch.dtype) -> Tensor:
    """NaN everywhere: an element that no program writes shows."""
    return torch.full(shape, float("nan"), dtype=dtype, device="cuda")


def check_linear(log: ErrorLog, block: int, dtype: torch.dtype, tokens: int) -> None:
    """Every configuration of the three linear passes, and the norms, on one random problem."""
    topology = odd_topology(9, 7, block)
    weight = torch.randn(topology.block_rows.numel(), block, block, device="cuda").to(dtype)
    x = torch.randn(tokens, 7 * block, device="cuda").to(dtype)
    gradient = torch.randn(tokens, 9 * block, device="cuda").to(dtype)
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 or dtype != torch.float32 else "ieee"
    tolerance = TF32_TOLERANCE if dtype == torch.float32 and precision == "tf32" else TOLERANCE[dtype]
    wide = (gradient.double(), x.double(), weight.double())
    expected = {
        True: reference.linear(wide[1], wide[2], topology),
        False: reference.linear_input_grad(wide[0], wide[2], topology),
    }
    for config in product_configs(block, x.itemsize, precision, has_warp_specialisation(x.get_device())):
        for forward, operand in ((True, x), (False, gradient)):
            out = poisoned(*expected[forward].shape, dtype=dtype)
            product.launch_product(config, operand, weight, out, topology, forward)
            log.add(f"linear {dtype} {precision}", out, expected[forward], tolerance)
    expected_weight = reference.linear_weight_grad(wide[0], wide[1], topology)
    for config in weight_grad_configs(block, x.itemsize, precision, (1, 4)):
        out = poisoned(*weight.shape, dtype=dtype)
        weight_grad.launch_weight_grad(config, gradient, x, out, topology)
        log.add(f"weight gradient {dtype} {precision}", out, expected_weight, tolerance)
    check_norms(log, gradient, x, block, tolerance)
    check_gelu(log, block, gradient, x, weight, topology, tolerance)


def check_gelu(
    log: ErrorLog, block: int, gradient: Tensor, x: Tensor, weight: Tensor, topology: BlockTopology, tolerance: float
) -> None:
    """Every configuration of the product that leaves a GELU, with and without bias, and of the scaled gradient."""
    precision, weight = dot_precision(x.dtype), weight / (2 * block) ** 0.5  # hidden values of order one
    shift = torch.randn(gradient.shape[1], device="cuda").to(x.dtype)
    scaled = reference.linear_input_grad(gradient.double(), weight.double(), topology) * x.double()
    for config in mlp.epilogue_configs(block, x.itemsize, precision):
        for bias in (None, shift):
            hidden = reference.linear(x.double(), weight.double(), topology)
            hidden = (hidden if bias is None else hidden + bias.double()).requires_grad_()
            value = torch.nn.functional.gelu(hidden)
            (rise,) = torch.autograd.grad(value.sum(), hidden)
            activated, slope = (poisoned(*gradient.shape, dtype=x.dtype) for _ in range(2))
            mlp.launch_activation(config, x, weight, bias, (activated, slope), topology, "gelu")
            log.add(f"GELU {x.dtype} {precision}", activated, value.detach(), tolerance)
            log.add(f"slope of GELU {x.dtype} {precision}", slope, rise, tolerance)
        out = poisoned(*x.shape, dtype=x.dtype)
        mlp.launch_scaled(config, gradient, weight, x, out, topology)
        log.add(f"scaled input gradient {x.dtype} {precision}", out, scaled, tolerance)


def check_warp_specialised(log: ErrorLog, block: int, dtype: torch.dtype) -> None:
    """More output tiles than programs, empty groups among them, and the same bits from prepared launches."""
    if (
        block not in WARP_SPECIALISED_PRODUCT
        or dtype.itemsize != 2
        or not has_warp_specialisation(torch.cuda.current_device())
    ):
        return
    config, first, second = WARP_SPECIALISED_PRODUCT[block], odd_topology(40, 23, block), odd_topology(23, 40, block)
    weights = [
        (torch.randn(topology.block_rows.numel(), block, block, device="cuda") / block**0.5).to(dtype)
        for topology in (first, second)
    ]
    x, gradient = (torch.randn(9000, 23 * block, device="cuda").to(dtype) for _ in range(2))
    shift = torch.randn(40 * block, device="cuda").to(dtype)
    hidden = reference.linear(x.double(), weights[0].double(), first)
    backward = reference.linear_input_grad(gradient.double(), weights[1].double(), second)
    rows, cols = product.walk_of(first, True), product.walk_of(second, False)
    # Of each pass the first launch, the same launch once it is prepared, and what both should leave.
    passes: list[tuple[Callable[[Tensor], Any], Callable[[Any, Tensor], bool], Tensor]] = [
        (
            lambda y: product.launch_product(config, x, weights[0], y, first, True),
            lambda again, y: again(x.clone(), weights[0], y, weights[0], *rows),
            hidden,
        ),
        (
            lambda y: product.launch_product(config, gradient, weights[1], y, second, False),
            lambda again, y: again(gradient.clone(), weights[1], y, weights[1], *cols),
            backward,
        ),
    ]
    if dtype == torch.bfloat16:  # the slope's bytes are for bfloat16 alone
        shifted = hidden + shift.double()
        slope = packed_slopes(x, 40 * block, block)
        passes += [
            (
                lambda y: mlp.launch_activation(config, x, weights[0], shift, (y, slope), first, "gelu"),
                lambda again, y: again(x.clone(), weights[0], y, slope, shift, *rows),
                gelu_of(shifted),
            ),
            (
                lambda y: mlp.launch_scaled(config, gradient, weights[1], slope, y, second),
                lambda again, y: again(gradient.clone(), weights[1], slope, y, *cols),
                torch.ops.aten.gelu_backward(backward, shifted),
            ),
        ]
    for start, restart, expected in passes:
        out, again = (poisoned(*expected.shape, dtype=dtype) for _ in range(2))
        prepared = start(out)
        log.add(f"warp-specialised {dtype}", out, expected, TOLERANCE[dtype])
        if prepared is not None and not (restart(prepared, again) and torch.equal(out, again)):
            raise ArithmeticError(f"warp-specialised, blocks of {block}: a prepared launch differs from the first")


def check_norms(log: ErrorLog, gradient: Tensor, x: Tensor, block: int, tolerance: float) -> None:
    """All ways of computing norms."""
    rows, cols = torch.nonzero(torch.rand(9, 7, device="cuda") < 0.7, as_tuple=True)
    rows, cols = rows.int(), cols.int()
    dense = gradient.double().T @ x.double()
    expected = BlockLayout(9 * block, 7 * block, block, block).blocks(dense).square().sum((2, 3)).sqrt()
    expected = expected[rows.long(), cols.long()]
    for name, result in (
        ("list", norms.norms_of_list(gradient, x, rows, cols, block, None)),
        ("groups", norms.norms_of_groups(gradient, x, rows, cols, block, None)),
        ("tiles", norms.norms_by_tiles(gradient, x, rows, cols, block)),
    ):
        log.add(f"norms {name} {x.dtype} {dot_precision(x.dtype)}", result, expected, tolerance)


def check_conv(log: ErrorLog, block: int, dtype: torch.dtype, geometry: Conv2dGeometry) -> None:
    """Every configuration of the three convolution passes, and the norms, on one random problem."""
    in_channels, out_channels, taps = 2 * block, 3 * block, geometry.taps
    topology = odd_topology(3, 2 * taps, block)
    weight = torch.randn(topology.block_rows.numel(), block, block, device="cuda").to(dtype)
    x = torch.randn(3, in_channels, 13, 10, device="cuda").to(dtype).contiguous(memory_format=torch.channels_last)
    gradient = torch.randn(3, out_channels, *geometry.output_size(13, 10), device="cuda").to(dtype)
    problem = ConvProblem.build(list(x.shape), list(gradient.shape), geometry)
    tolerance = TOLERANCE[dtype]
    wide = (gradient.double(), x.double(), weight.double())
    source, flat = problem.pixels_of(x), problem.pixels_of(gradient)
    forward = problem.pixels_of(reference.conv2d(wide[1], wide[2], topology, geometry))
    backward = problem.pixels_of(reference.conv2d_input_grad(wide[0], wide[2], topology, list(x.shape), geometry))
    for config in conv_product_configs(block, x.itemsize, "ieee", problem.boxed):
        out = poisoned(*flat.shape, dtype=dtype)
        conv.launch_conv_forward(config, source, weight, out, topology, problem)
        log.add(f"conv {dtype}", out, forward, tolerance)
        out = poisoned(*source.shape, dtype=dtype)
        conv.launch_conv_input_grad(config, flat, weight, out, topology, problem)
        log.add(f"conv {dtype}", out, backward, tolerance)
    expected = reference.conv2d_weight_grad(wide[0], wide[1], topology, geometry)
    for config in conv_weight_grad_configs(block, x.itemsize, "ieee", problem.boxed, (1, 4)):
        out = poisoned(*weight.shape, dtype=dtype)
        conv.launch_conv_weight_grad(config, flat, source, out, topology, problem)
        log.add(f"conv weight gradient {dtype}", out, expected, tolerance)
    rows, cols = topology.block_rows, topology.block_cols
    found = expected.square().sum((1, 2)).sqrt()
    for way in (norms.norms_of_list, norms.norms_of_groups, norms.conv_norms_by_tiles):
        log.add(f"conv norms {dtype}", way(flat, source, rows, cols, block, problem), found, tolerance)


def check_large_index(log: ErrorLog) -> None:
    """Outputs and operands beyond 2**31 elements: the last tokens must come out as if they stood alone."""
    block, tokens, tail = 128, 140_000, 512
    topology = odd_topology(128, 4, block)
    weight = torch.randn(topology.block_rows.numel(), block, block, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(tokens, 4 * block, device="cuda", dtype=torch.bfloat16)
    y = product.linear(x, weight, None, *topology)
    expected = reference.linear(x[-tail:].double(), weight.double(), topology)
    log.add("more than 2**31 elements", y[-tail:], expected, TOLERANCE[torch.bfloat16])
    input_grad = product.linear_input_grad(y, weight, *topology)
    expected = reference.linear_input_grad(y[-tail:].double(), weight.double(), topology)
    log.add("more than 2**31 elements", input_grad[-tail:], expected, TOLERANCE[torch.bfloat16])
    y[:-tail] = 0
    gradient = weight_grad.linear_weight_grad(y, x, *topology, x.dtype)
    expected = reference.linear_weight_grad(y[-tail:].double(), x[-tail:].double(), topology)
    log.add("more than 2**31 elements", gradient, expected, TOLERANCE[torch.bfloat16])


def check_determinism() -> None:
    """The same bits twice, splits included, and NaN where dense has it."""
    topology = odd_topology(9, 7, 64)
    x, gradient = (torch.randn(5000, n * 64, device="cuda", dtype=torch.bfloat16) for n in (7, 9))
    for config in weight_grad_configs(64, 2, "tf32", (1, 8)):
        outs = [poisoned(topology.block_rows.numel(), 64, 64, dtype=torch.bfloat16) for _ in range(2)]
        for out in outs:
            weight_grad.launch_weight_grad(config, gradient, x, out, topology)
        if not torch.equal(*outs):
            raise ArithmeticError(f"two runs of {config} differ")
    weight = torch.randn(topology.block_rows.numel(), 64, 64, device="cuda", dtype=torch.bfloat16)
    x[17, 200] = float("nan")
    present = torch.zeros(9, dtype=torch.bool, device="cuda")
    present[topology.block_rows[topology.block_cols == 200 // 64].long()] = True
    reached = product.linear(x, weight, None, *topology).isnan().view(len(x), 9, 64)
    if not torch.equal(reached[17].all(1), present) or int(reached.sum()) != 64 * int(present.sum()):
        raise ArithmeticError("a NaN in x did not reach exactly the outputs that have a block for it")


def check_relaunch(block: int) -> None:
    """The same bits from the first launch of a problem, which Triton makes, and from later ones, which are prepared."""
    topology, conv_topology = odd_topology(9, 7, block), odd_topology(2, 18, block)
    x, gradient = (torch.randn(333, n * block, device="cuda").bfloat16() for n in (7, 9))
    images = torch.randn(8, 2 * block, 9, 9, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    images_grad, sizes = torch.randn_like(images), list(images.shape)
    weight, kernel = (
        torch.randn(one.block_rows.numel(), block, block, device="cuda").bfloat16() for one in (topology, conv_topology)
    )
    pairs = Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1)).as_lists()
    passes: list[tuple[Callable[..., Tensor], tuple[Tensor, ...], tuple[Any, ...]]] = [
        (product.linear, (x, weight), (None, *topology)),
        (product.linear_input_grad, (gradient, weight), topology),
        (weight_grad.linear_weight_grad, (gradient, x), (*topology, x.dtype)),
        (
            lambda x, weight, *rest: mlp.linear_activation(x, weight, None, "gelu", False, *rest)[1],
            (x, weight),
            topology,
        ),
        (mlp.linear_scaled_input_grad, (gradient, weight, x), topology),
        (conv.conv2d, (images, kernel), (None, *conv_topology, *pairs)),
        (conv.conv2d_input_grad, (images_grad, kernel), (*conv_topology, sizes, *pairs)),
        (conv.conv2d_weight_grad, (images_grad, images), (*conv_topology, *pairs, x.dtype)),
    ]
    for run, operands, rest in passes:
        first = run(*operands, *rest)
        for _ in range(2):
            moved = [operand.clone() for operand in operands]
            if not torch.equal(run(*moved, *rest), first):
                raise ArithmeticError(f"{run.__name__}, blocks of {block}: a later launch differs from the first")


def check_block_size(block: int, dtype_name: str, allow_tf32: bool) -> dict[str, float]:
    """The linear checks of one block size and dtype, in a process of its own."""
    torch.manual_seed(block)
    torch.backends.cuda.matmul.allow_tf32 = allow_tf32
    log = ErrorLog()
    for tokens in (1, 333):
        check_linear(log, block, getattr(torch, dtype_name), tokens)
    check_warp_specialised(log, block, getattr(torch, dtype_name))
    return log.largest


def check_conv_block_size(block: int, dtype_name: str) -> dict[str, float]:
    """The convolution checks of one block size and dtype; its process may have checked with tf32 before."""
    torch.manual_seed(block)
    torch.backends.cuda.matmul.allow_tf32 = False
    log = ErrorLog()
    for geometry in (
        Conv2dGeometry((3, 3), (1, 1), (1, 1), (1, 1)),
        Conv2dGeometry((3, 2), (2, 1), (1, 0), (1, 2)),
    ):
        check_conv(log, block, getattr(torch, dtype_name), geometry)
    return log.largest


def check_once() -> dict[str, float]:
    """The checks that do not depend on a block size; its process may have checked with tf32 before."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    log = ErrorLog()
    check_large_index(log)
    check_determinism()
    for block in BLOCK_SIZES:
        check_relaunch(block)
    return log.largest


def check_everything() -> dict[str, Any]:
    """All checks, in parallel processes, because compiling takes longest; the largest error of each kind."""
    linear = [(block, name, False) for block in BLOCK_SIZES for name in ("bfloat16", "float16", "float32")]
    linear += [(block, "float32", True) for block in BLOCK_SIZES]
    convolutions = [(block, "bfloat16") for block in BLOCK_SIZES] + [(32, "float32")]
    largest: dict[str, float] = {}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"), end_with_parent) as pool:
        jobs = [pool.submit(check_once)]
        jobs += [pool.submit(check_block_size, *case) for case in linear]
        jobs += [pool.submit(check_conv_block_size, *case) for case in convolutions]
        for job in jobs:
            for name, error in job.result().items():
                largest[name] = max(largest.get(name, 0.0), error)
    print({name: f"{error:.1e}" for name, error in largest.items()}, flush=True)
    return {"largest_relative_errors": largest}
