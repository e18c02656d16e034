"""A layer and its training step: linear, a normalisation, an activation, a loss, an optimizer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.options import option
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.encoding import Bits
from acf.rtl.device.step.optimizer import optimizer_named

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StepSizes:
    """The layer of a step: its sizes, the share of absent blocks, and the optimizer's constants."""

    tokens: int = option(32, "Rows of the input.", min=1)
    inputs: int = option(32, "Features of the input.", min=1)
    outputs: int = option(32, "Features of the output.", min=1)
    sparsity: float = option(0.5, "Share of absent weight blocks.", min=0.0, max=1.0)
    seed: int = option(0, "Seed of all values.", min=0)
    passes: str = option("cnn", "cnn: batch norm, ReLU, squared error; transformer: layer norm, GELU, cross-entropy.")
    optimizer: str = option("sgd", "sgd, or adam: with decoupled weight decay.")
    learning_rate: float = option(0.1, "Learning rate.", min=0.0)
    momentum: float = option(0.9, "Momentum of SGD, beta1 of Adam.", min=0.0)
    second_beta: float = option(0.999, "beta2 of Adam.", min=0.0, max=1.0)
    weight_decay: float = option(0.01, "Weight decay.", min=0.0)
    optimizer_eps: float = option(1e-8, "Added to the root of Adam's second moment.", min=0.0)
    step: int = option(1, "Number of the step, by which Adam corrects the bias of its moments.", min=1)
    eps: float = option(1e-5, "Added to the variance.", min=1e-12)

    @property
    def has_labels(self) -> bool:
        """Whether the target is a label for every token."""
        return self.passes == "transformer"


@dataclass(frozen=True, eq=False)
class StepState:
    """Values before a step, or after it. ``x [tokens, inputs]`` and ``target [tokens, outputs]`` are bf16 bits.

    ``master [inputs, outputs]`` and ``moments [n, inputs, outputs]`` are float32, zero where ``kept`` (bool blocks
    ``[inputs / tile, outputs / tile]``) is False. SGD has one moment; Adam has two, the second one first. ``channels``
    are float32 ``[2 + 2 n, outputs]``: gamma, beta, the moments of gamma, those of beta. The loss is half the squared
    error, summed; or the mean cross-entropy, where ``target`` is one-hot.
    """

    x: Bits
    target: Bits
    kept: NDArray[np.bool_]
    master: Floats
    moments: Floats
    channels: Floats

    @property
    def weight(self) -> Bits:
        """The master weights as bf16."""
        return bf16_bits(self.master)


def random_step(sizes: StepSizes, tile: int) -> StepState:
    """Random values for a step; every column of blocks has at least one, else its outputs would be constant."""
    for name in ("tokens", "inputs", "outputs"):
        if getattr(sizes, name) % tile:
            raise RtlError(f"{name} {getattr(sizes, name)} is not a multiple of the tile of {tile}; use one")
    rng = np.random.default_rng(sizes.seed)
    rows, columns = sizes.inputs // tile, sizes.outputs // tile
    kept = rng.random((rows, columns)) >= sizes.sparsity
    kept[rng.integers(rows, size=columns), np.arange(columns)] = True
    present = np.kron(kept, np.ones((tile, tile), dtype=bool))
    moments = optimizer_named(sizes.optimizer).moments

    def normal(*shape: int) -> Floats:
        return rng.standard_normal(shape).astype(np.float32)

    state = StepState(
        x=bf16_bits(np.maximum(normal(sizes.tokens, sizes.inputs), 0)),
        target=bf16_bits(_one_hot(rng, sizes) if sizes.has_labels else normal(sizes.tokens, sizes.outputs)),
        kept=kept,
        master=np.where(present, normal(*present.shape) / np.float32(sizes.inputs) ** 0.5, 0).astype(np.float32),
        moments=np.where(present, normal(moments, *present.shape), 0).astype(np.float32),
        channels=np.concatenate(
            [1 + 0.1 * normal(1, sizes.outputs), 0.1 * normal(1 + 2 * moments, sizes.outputs)]
        ).astype(np.float32),
    )
    if moments == 2:  # the second moment is a mean of squares
        state.moments[0] **= 2
        state.channels[2::2] **= 2
    return state


def _one_hot(rng: np.random.Generator, sizes: StepSizes) -> Floats:
    labels = rng.integers(sizes.outputs, size=sizes.tokens)
    return np.eye(sizes.outputs, dtype=np.float32)[labels]
