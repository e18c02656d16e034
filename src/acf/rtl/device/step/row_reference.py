"""The vector work of a step of a transformer by NumPy: same sums, same order, same rounding."""

from dataclasses import dataclass

import numpy as np

from acf.rtl.design.arithmetic.model import bf16_bits, bf16_values
from acf.rtl.device.step.channel_reference import updated_channels
from acf.rtl.device.step.layer import Floats, StepSizes, StepState
from acf.rtl.device.step.model_passes import constants_of, emitted, passed, sums_of
from acf.rtl.device.step.vector_result import VectorResult


def statistics_constants(sizes: StepSizes, lanes: int) -> Floats:
    """Constants from which scale and shift of a row are made."""
    return constants_of(lanes, -0.5 / sizes.outputs, -sizes.eps / 2, 1.0, 0.0, 1.5)


def shift_constants(lanes: int) -> Floats:
    """Minus the scale of exponents of two."""
    return constants_of(lanes, -np.log2(np.e))


def share_constants(sizes: StepSizes, lanes: int) -> Floats:
    """What is divided by a sum of exponentials: the loss is a mean."""
    return constants_of(lanes, 1 / sizes.tokens)


@dataclass(frozen=True, eq=False)
class _RowTile:
    """Values of a row of tiles, ``[outputs, lanes]`` but for the ``loss [lanes]``."""

    x_hat: Floats
    y: Floats
    masked: Floats
    dz: Floats
    loss: Floats


def row_reference(
    forward: Floats, state: StepState, sizes: StepSizes, order: list[list[int]], tile: int
) -> VectorResult:
    """``forward [tokens, outputs]``: the product. ``order``: of every row of tiles, its columns in order of summing."""
    target = bf16_values(state.target)
    found = []
    for row, columns_in_order in enumerate(order):
        own = slice(row * tile, (row + 1) * tile)
        columns = np.concatenate([np.arange(column * tile, (column + 1) * tile) for column in columns_in_order])
        found.append(_row_tile(_turned(forward[own]), _turned(target[own]), state, sizes, columns))
    x_hat, y, masked, dz = (
        np.concatenate([_turned(getattr(each, name)) for each in found]) for name in ("x_hat", "y", "masked", "dz")
    )
    channels = state.channels.copy()
    for column in range(channels.shape[1] // tile):
        own = slice(column * tile, (column + 1) * tile)
        beta, gamma = sums_of(passed(("layer_norm", "backward", 2), x_hat[:, own], masked[:, own]))
        channels[:, own] = updated_channels(np.concatenate([gamma, beta]), channels[:, own], sizes)
    return VectorResult(y, dz, channels, np.concatenate([each.loss for each in found]))


def _turned(values: Floats) -> Floats:
    return np.ascontiguousarray(values.T)


def _row_tile(
    z: Floats, target: Floats, state: StepState, sizes: StepSizes, columns: "np.typing.NDArray[np.int64]"
) -> _RowTile:
    """A row of tiles from the product's output to its gradient."""
    kind, lanes = "layer_norm", z.shape[1]
    gamma, beta = (np.repeat(bf16_values(bf16_bits(each))[:, None], lanes, axis=1) for each in state.channels[:2])
    sums = sums_of(passed((kind, "forward", 0), z[columns]))
    statistics = emitted(("batch_norm", "statistics", 0), *sums, statistics_constants(sizes, lanes))
    scale, shift = statistics[:2]
    both = passed(
        (kind, "forward", 1), _pairs(z, beta), np.repeat(gamma, 2, axis=0), constants_of(lanes, scale, shift), takes=2
    )
    x_hat, normalised = (
        np.ascontiguousarray(each) for each in both.out.view(np.float32).reshape(-1, 2, lanes).swapaxes(0, 1)
    )
    y = emitted(("gelu", "forward", 0), normalised)
    dy, loss = _loss(y, target, sizes)
    masked = emitted(("gelu", "backward", 0), normalised, dy)
    inputs = _pairs(x_hat, masked), np.repeat(gamma, 2, axis=0)
    gradient_sums = sums_of(passed((kind, "backward", 0), *inputs, takes=2))
    constants = emitted(("batch_norm", "gradients", 0), *gradient_sums, constants_of(lanes, -1 / sizes.outputs, scale))
    dz = passed((kind, "backward", 1), *inputs, constants_of(lanes, *statistics[2:], *constants), takes=2)
    return _RowTile(x_hat, y, masked, dz.out.view(np.float32), loss)


def _pairs(first: Floats, second: Floats) -> Floats:
    """Vectors of both in turn."""
    return np.stack([first, second], axis=1).reshape(-1, first.shape[1])


def _loss(y: Floats, target: Floats, sizes: StepSizes) -> tuple[Floats, Floats]:
    """Gradient of the mean cross-entropy and the loss of each row; ``target`` is one-hot."""
    kind, lanes = "cross_entropy", y.shape[1]
    maxima, logits = sums_of(passed((kind, "forward", 0), y, target))
    shift = emitted(("softmax", "shift", 0), maxima, None, shift_constants(lanes))[0]
    powers = passed((kind, "forward", 1), y, None, constants_of(lanes, np.log2(np.e), shift))
    sums = sums_of(powers)[0]
    shares = emitted(("softmax", "reciprocal", 0), sums, None, share_constants(sizes, lanes))[0]
    loss = passed((kind, "loss", 0), _pairs(sums, logits), np.repeat(maxima, 2, axis=0), takes=2).out.view(np.float32)[
        0
    ]
    constants = constants_of(lanes, shares, -1 / sizes.tokens)
    return emitted((kind, "backward", 0), powers.out.view(np.float32), target, constants), loss
