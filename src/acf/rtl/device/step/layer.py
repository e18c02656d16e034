"""A layer and its training step: linear, batch normalisation, ReLU, squared error, SGD with momentum."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.options import option
from acf.rtl.design.arithmetic.model import bf16_bits
from acf.rtl.design.fabric.encoding import Bits

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StepSizes:
    """The layer of a step: its sizes, the share of absent blocks, and the optimizer's constants."""

    tokens: int = option(32, "Rows of the input.", min=1)
    inputs: int = option(32, "Features of the input.", min=1)
    outputs: int = option(32, "Features of the output.", min=1)
    sparsity: float = option(0.5, "Share of absent weight blocks.", min=0.0, max=1.0)
    seed: int = option(0, "Seed of all values.", min=0)
    learning_rate: float = option(0.1, "Learning rate of SGD.", min=0.0)
    momentum: float = option(0.9, "Momentum of SGD.", min=0.0)
    weight_decay: float = option(0.01, "Weight decay of SGD.", min=0.0)
    eps: float = option(1e-5, "Added to the variance.", min=1e-12)


@dataclass(frozen=True, eq=False)
class StepState:
    """Values before a step, or after it. ``x [tokens, inputs]`` and ``target [tokens, outputs]`` are bf16 bits.

    ``master`` and ``momentum`` are float32 ``[inputs, outputs]``, zero where ``kept`` (bool blocks
    ``[inputs / tile, outputs / tile]``) is False; ``channels`` are float32 ``[4, outputs]``: gamma, beta and the
    momentum of each. The loss is half the squared error, summed.
    """

    x: Bits
    target: Bits
    kept: NDArray[np.bool_]
    master: Floats
    momentum: Floats
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

    def normal(*shape: int) -> Floats:
        return rng.standard_normal(shape).astype(np.float32)

    return StepState(
        x=bf16_bits(np.maximum(normal(sizes.tokens, sizes.inputs), 0)),
        target=bf16_bits(normal(sizes.tokens, sizes.outputs)),
        kept=kept,
        master=np.where(present, normal(*present.shape) / np.float32(sizes.inputs) ** 0.5, 0).astype(np.float32),
        momentum=np.where(present, normal(*present.shape), 0).astype(np.float32),
        channels=np.concatenate([1 + 0.1 * normal(1, sizes.outputs), 0.1 * normal(3, sizes.outputs)]).astype(
            np.float32
        ),
    )
