"""The vector work of a step of a CNN by NumPy: same sums, same order, same rounding."""

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_values
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.model_passes import constants_of, emitted, passed, sums_of
from acf.rtl.device.step.optimizer import optimizer_named
from acf.rtl.device.step.vector_result import VectorResult


def input_constants(sizes: StepSizes, gamma: Floats, beta: Floats) -> Floats:
    """Constants from which the statistics of a channel group are made."""
    ones = np.ones_like(gamma)
    count = np.float32(-1 / (2 * sizes.tokens))
    return np.stack([count * ones, np.float32(-sizes.eps / 2) * ones, gamma, beta, np.float32(1.5) * ones])


def channel_reference(
    forward: Floats, state: StepState, sizes: StepSizes, order: list[list[int]], tile: int
) -> VectorResult:
    """``forward [tokens, outputs]``: the product. ``order``: of every column of tiles, its rows in order of summing."""
    y, dz, channels = np.zeros_like(forward), np.zeros_like(forward), state.channels.copy()
    for column, rows_in_order in enumerate(order):
        own = slice(column * tile, (column + 1) * tile)
        rows = np.concatenate([np.arange(row * tile, (row + 1) * tile) for row in rows_in_order])
        group = _channel_group(forward[rows, own], bf16_values(state.target)[rows, own], channels[:, own], sizes)
        y[rows, own], dz[rows, own], channels[:, own] = group
    return VectorResult(y, dz, channels)


def _channel_group(z: Floats, target: Floats, channels: Floats, sizes: StepSizes) -> tuple[Floats, Floats, Floats]:
    """Output, gradient of ``z``, and new channel values of one channel group, ``[tokens, tile]``."""
    kind, lanes = "batch_norm", z.shape[1]
    sums = passed((kind, "forward", 0), z)
    first = passed((kind, "statistics", 0), *sums_of(sums), input_constants(sizes, channels[0], channels[1]))
    scale, shift, inverse, offset = first.out.view(np.float32)
    normalised = emitted((kind, "forward", 1), z, z, constants_of(lanes, scale, shift))
    y = emitted(("relu", "forward", 0), normalised)
    dy = emitted(("add", "forward", 0), y, -target)
    masked = emitted(("relu", "backward", 0), dy, y)
    sums = passed((kind, "backward", 0), z, masked, constants_of(lanes, inverse, offset))
    second = passed((kind, "gradients", 0), *sums_of(sums), constants_of(lanes, -1 / sizes.tokens, scale))
    dz = emitted((kind, "backward", 1), z, masked, np.stack([inverse, offset, *second.out.view(np.float32)]))
    beta_gradient, gamma_gradient = sums_of(sums)
    return y, dz, updated_channels(np.concatenate([gamma_gradient, beta_gradient]), channels, sizes)


def updated_channels(gradients: Floats, channels: Floats, sizes: StepSizes) -> Floats:
    """``channels`` of a group after the update; ``gradients [2, lanes]``: of gamma and beta."""
    optimizer = optimizer_named(sizes.optimizer)
    count = optimizer.moments
    new = channels.copy()
    for number, gradient in enumerate(gradients):
        own = slice(2 + count * number, 2 + count * (number + 1))
        out = optimizer.updated(gradient[None], channels[number : number + 1], channels[own][:, None], sizes)
        new[own], new[number] = out[:count, 0], out[count, 0]
    return new
