"""Launching the products of a gated pair of layers: fused, or one by one where that was measured to be faster."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from acf.ops import gated as gated_ops
from acf.ops.triton.configs import gated_configs, pair_configs
from acf.ops.triton.gated_kernels import (
    gate_grad_kernel,
    gate_kernel,
    gated_input_grad_kernel,
    gated_kernel,
    pair_input_grad_kernel,
)
from acf.ops.triton.launch import Tiled, launch
from acf.ops.triton.product import linear, linear_input_grad, walk_of
from acf.ops.triton.support import ceil_div, dot_precision, readable, supports
from acf.ops.triton.tuning import TUNER, LaunchConfig, ProblemKey, density_bucket, token_bucket
from acf.sparse import BlockTopology

SPAN = 1024
"""Elements that a program of an elementwise kernel computes."""

Topology = Sequence[Tensor]


def linear_gated(x: Tensor, gate_weight: Tensor, up_weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`acf.ops.gated.block_linear_gated` on the GPU."""
    *biases, activation, factors, gate_topology, up_topology = rest
    weights, topologies = (gate_weight, up_weight), (gate_topology, up_topology)
    if not _fits(x, *weights):
        return gated_ops.products_then_gate(x, *weights, *biases, activation, factors, *topologies)
    x, weights = readable(x), (readable(gate_weight), readable(up_weight))
    biases = [None if bias is None else readable(bias) for bias in biases]
    block, groups = gate_weight.shape[1], gate_topology[2].shape[0] - 1
    hidden = x.new_empty((x.shape[0], groups * block))
    others = [torch.empty_like(hidden) if factors else hidden for _ in range(2)]

    def start(config: LaunchConfig) -> None:
        launch_gated(config, x, weights, biases, (hidden, *others), topologies, (activation, factors))

    # All activations share one choice: they cost about the same.
    key = _key("gated" if factors else "gated_inference", x, weights, groups)
    start(_choose((key.op, biases[0] is None, biases[1] is None), key, x, weights, start, paired=True))
    return hidden, *(others if factors else (x.new_empty(0), x.new_empty(0)))


def linear_gated_input_grad(
    output_grad: Tensor, weight: Tensor, gate_factor: Tensor, up_factor: Tensor, *tensors: Tensor
) -> tuple[Tensor, Tensor]:
    """`acf.ops.gated.block_linear_gated_input_grad` on the GPU."""
    if not _fits(output_grad, weight):
        return gated_ops.input_grad_then_factors(output_grad, weight, gate_factor, up_factor, *tensors)
    output_grad, weight, factors = readable(output_grad), readable(weight), (readable(gate_factor), readable(up_factor))
    results = (torch.empty_like(factors[0]), torch.empty_like(factors[0]))

    def start(config: LaunchConfig) -> None:
        launch_gated_input_grad(config, output_grad, weight, factors, results, tensors)

    key = _key("gated_input_grad", output_grad, (weight,), tensors[4].shape[0] - 1)
    start(_choose((key.op,), key, output_grad, (weight,), start))
    return results


def linear_pair_input_grad(
    gate_grad: Tensor,
    up_grad: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor,
    gate_topology: Topology,
    up_topology: Topology,
) -> Tensor:
    """`acf.ops.gated.block_linear_pair_input_grad` on the GPU."""
    if not _fits(gate_grad, gate_weight, up_weight):
        return gated_ops.input_grads_then_sum(gate_grad, up_grad, gate_weight, up_weight, gate_topology, up_topology)
    gradients, weights = (readable(gate_grad), readable(up_grad)), (readable(gate_weight), readable(up_weight))
    groups, topologies = gate_topology[4].shape[0] - 1, (gate_topology, up_topology)
    out = gate_grad.new_empty((gate_grad.shape[0], groups * gate_weight.shape[2]))

    def start(config: LaunchConfig) -> None:
        launch_pair_input_grad(config, gradients, weights, out, topologies)

    key = _key("pair_input_grad", gradients[0], weights, groups)
    start(_choose((key.op,), key, gradients[0], weights, start))
    return out


def launch_gated(
    config: LaunchConfig,
    x: Tensor,
    weights: tuple[Tensor, Tensor],
    biases: Sequence[Tensor | None],
    results: Sequence[Tensor],
    topologies: tuple[Topology, Topology],
    form: tuple[str, bool],
) -> None:
    """Fill ``results``: hidden, gate factor, up factor; ``form`` is the activation and whether there are factors."""
    activation, factors = form
    if config.kernel == "separate":
        parts = zip(weights, biases, topologies, strict=True)
        products = [linear(x, weight, bias, *topology) for weight, bias, topology in parts]
        _elementwise(gate_kernel, (*products, *results), activation=activation, factors=factors)
        return
    block, walks = weights[0].shape[1], [walk_of(BlockTopology(*topology), True) for topology in topologies]
    launch(
        gated_kernel,
        walks[0].groups * ceil_div(x.shape[0], config.tile),
        (
            Tiled(x, [config.tile, config.depth]),
            *(Tiled(weight.view(-1, block), [block, config.depth]) for weight in weights),
            *(Tiled(result, [config.tile, block]) for result in results),
            *(weights[0] if bias is None else bias for bias in biases), *walks[0], *walks[1],
        ),
        (walks[0].groups,),
        block=block, token_tile=config.tile, depth=config.depth, swap=config.swap, has_gate_bias=biases[0] is not None,
        has_up_bias=biases[1] is not None, activation=activation, factors=factors,
        precision=dot_precision(x.dtype), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip


def launch_gated_input_grad(
    config: LaunchConfig,
    output_grad: Tensor,
    weight: Tensor,
    factors: tuple[Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    topology: Topology,
) -> None:
    """Fill ``results``: the gradients of the results of gate and up."""
    if config.kernel == "separate":
        _elementwise(gate_grad_kernel, (linear_input_grad(output_grad, weight, *topology), *factors, *results))
        return
    walk, block, box = walk_of(BlockTopology(*topology), False), weight.shape[1], [config.tile, weight.shape[1]]
    launch(
        gated_input_grad_kernel,
        walk.groups * ceil_div(output_grad.shape[0], config.tile),
        (
            Tiled(output_grad, [config.tile, config.depth]), Tiled(weight.view(-1, block), [config.depth, block]),
            *(Tiled(each, box) for each in (*factors, *results)), *walk,
        ),
        (walk.groups,),
        **_constants(config, block, output_grad),
    )  # fmt: skip


def launch_pair_input_grad(
    config: LaunchConfig,
    gradients: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor],
    out: Tensor,
    topologies: tuple[Topology, Topology],
) -> None:
    """Fill ``out [tokens, in]``."""
    if config.kernel == "separate":
        parts = zip(gradients, weights, topologies, strict=True)
        torch.add(*(linear_input_grad(gradient, weight, *topology) for gradient, weight, topology in parts), out=out)
        return
    block, walks = weights[0].shape[1], [walk_of(BlockTopology(*topology), False) for topology in topologies]
    launch(
        pair_input_grad_kernel,
        walks[0].groups * ceil_div(out.shape[0], config.tile),
        (
            *(Tiled(gradient, [config.tile, config.depth]) for gradient in gradients),
            *(Tiled(weight.view(-1, block), [config.depth, block]) for weight in weights),
            Tiled(out, [config.tile, block]), *walks[0], *walks[1],
        ),
        (walks[0].groups,),
        **_constants(config, block, out),
    )  # fmt: skip


def _constants(config: LaunchConfig, block: int, x: Tensor) -> dict[str, Any]:
    return {
        "block": block, "token_tile": config.tile, "depth": config.depth, "swap": config.swap,
        "precision": dot_precision(x.dtype), "num_warps": config.warps, "num_stages": config.stages,
    }  # fmt: skip


def _elementwise(kernel: Any, operands: Sequence[Tensor], **constants: Any) -> None:
    count = operands[0].numel()
    launch(kernel, ceil_div(count, SPAN), operands, (count,), span=SPAN, num_warps=4, **constants)


def _fits(x: Tensor, *weights: Tensor) -> bool:
    """Whether the kernels take these blocks, and all of them have one shape."""
    shapes = {weight.shape[1:] for weight in weights}
    if len(shapes) > 1 or not supports((weights[0].shape[1], weights[0].shape[2]), x, *weights):
        return False
    return bool(gated_configs(weights[0].shape[1], x.itemsize))


def _key(op: str, x: Tensor, weights: Sequence[Tensor], groups: int) -> ProblemKey:
    block, blocks = weights[0].shape[1], sum(weight.shape[0] for weight in weights)
    density = density_bucket(blocks, len(weights) * groups, x.shape[1] // block)
    precision, tokens = dot_precision(x.dtype), token_bucket(x.shape[0])
    return ProblemKey(op, groups * block, x.shape[1], block, str(x.dtype), precision, density, tokens)


def _choose(
    details: Hashable,
    key: ProblemKey,
    x: Tensor,
    weights: Sequence[Tensor],
    start: Callable[[LaunchConfig], None],
    paired: bool = False,
) -> LaunchConfig:
    """The remembered configuration, or the fastest under ``start``; ``paired`` where a tile has two accumulators."""
    configs = (gated_configs if paired else pair_configs)(key.block, x.itemsize)
    signature = (details, x.shape, *(weight.shape for weight in weights), key.rows, x.dtype, x.get_device())
    return TUNER.choose(signature, lambda: key, configs, start)
