"""Which blocks and which schedule did best in our runs, by family of model and kind of device, with the source."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from acf.errors import SparsityError

SMALLER_BLOCKS = (64, 32, 16)
"""What is tried, in this order, where the advised blocks divide too few layers of a model."""

ENOUGH = 0.5
"""Share of a model's weights in linear and convolution layers that blocks must divide."""


@dataclass(frozen=True)
class Advice:
    """What to begin with for one ``family`` of models on one kind of ``device``.

    ``blocks`` are sides of blocks; where there are several, `acf.plan` picks one for each layer. ``schedule`` says how
    the topology moves. ``rate_factor`` is the peak learning rate over the best one of dense training; None where it
    was not searched. ``evidence`` is what was measured with these settings and ``source`` where that is written down.
    """

    family: str
    device: str
    blocks: tuple[int, ...]
    schedule: str
    rate_factor: float | None
    evidence: str
    source: str

    @property
    def rate(self) -> str:
        """The learning rate in words."""
        return "not searched" if self.rate_factor is None else f"{self.rate_factor:g}x the dense one"

    def __str__(self) -> str:
        sides = " or ".join(str(block) for block in self.blocks)
        return (
            f"{self.family} on {self.device}: blocks of {sides}, {self.schedule}, learning rate {self.rate} "
            f"({self.source})"
        )


_FIXED = "fixed topology; moves did not help in a short run"
_EARLY = "fixed topology, or moves in the first quarter of the run; later ones cost accuracy in a short run"
_STEPS = "docs/results/steps-cpu.md"
_TRAINING = "docs/results/training.md"
_NO_RUN = (
    "no run at 90 % has learnt Pong in 8 million frames, at the dense rate or twice it; 32 divides both inner "
    "convolutions and the hidden layer of the Nature DQN, 64 does not"
)

ADVICE: tuple[Advice, ...] = (
    Advice(
        "cnn", "cuda", (32, 64), _EARLY, 2.0,
        "ResNet-18 of width 128, 90 %, 12 epochs, one H200: 1.78x the speed of dense, 1.16 points below it",
        f"{_TRAINING}, training-resnet18-tuned.json",
    ),
    Advice(
        "transformer", "cuda", (128,), _FIXED, 4.0,
        "GPT of d = 1024, 90 %, one H200: 2.46x a step, the dense loss 3.26x sooner",
        f"{_TRAINING}, training-gpt1024-seeds.json",
    ),
    Advice("rl", "cuda", (32,), "moving topology, 30 updates", None, _NO_RUN, "docs/how-to/pong.md"),
    Advice(
        "cnn", "cpu", (32,), _EARLY, 2.0,
        "ResNet-18, 90 %, two cores: 5.51x a step with AVX2, 4.65x with AVX-512; accuracy and rate from the GPU's runs",
        f"{_STEPS}, {_TRAINING}",
    ),
    Advice(
        "transformer", "cpu", (32,), _FIXED, 4.0,
        "MLP-Mixer-S, 90 %, two cores: 6.17x a step with AVX2, 4.81x with AVX-512; rate from the GPU's runs",
        f"{_STEPS}, {_TRAINING}",
    ),
    Advice("rl", "cpu", (32,), "moving topology, 30 updates", None, _NO_RUN, "docs/how-to/pong.md"),
)  # fmt: skip
"""Every piece of advice; `acf doctor` and docs/how-to/whole-step.md show it."""

FAMILIES = tuple(dict.fromkeys(each.family for each in ADVICE))

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMALISATIONS = (nn.LayerNorm, nn.RMSNorm, nn.MultiheadAttention)


def advise(family: str, device: str) -> Advice:
    """The advice for a family and a kind of device; a device without records gets the GPU's.

    >>> advise("cnn", "cuda").blocks
    (32, 64)
    """
    if family not in FAMILIES:
        raise SparsityError(f"family {family!r} is not one of {', '.join(FAMILIES)}; use one of these names")
    kind = device if any(each.device == device for each in ADVICE) else "cuda"
    return next(each for each in ADVICE if (each.family, each.device) == (family, kind))


def family_of(model: nn.Module) -> str:
    """ "cnn" or "transformer", from where the weights lie; name "rl" yourself, for no layer shows it.

    Networks of linear layers alone count as transformers: their products are of the same kind.

    >>> family_of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 10)))
    'cnn'
    """
    convolutions = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, _CONVOLUTIONS))
    linear = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear))
    has_norms = any(isinstance(layer, _NORMALISATIONS) for layer in model.modules())
    return "cnn" if convolutions > linear or (convolutions and not has_norms) else "transformer"


def fitting_blocks(blocks: Sequence[int], shapes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """``blocks``, or the next smaller side, so that they divide at least half of the weights of ``shapes``.

    ``shapes`` are outputs and inputs of the layers. None of `SMALLER_BLOCKS` fitting is refused.

    >>> fitting_blocks((128,), [(96, 192), (192, 96)])
    (32,)
    """
    if not shapes:
        raise SparsityError("the model has no dense layer that could become sparse; plan before sparsify_")
    total = sum(outputs * inputs for outputs, inputs in shapes)
    smaller = [(side,) for side in SMALLER_BLOCKS if side < min(blocks)]
    for sides in (tuple(blocks), *smaller):
        divided = sum(
            outputs * inputs
            for outputs, inputs in shapes
            if any(outputs % side == 0 and inputs % side == 0 for side in sides)
        )
        if divided >= ENOUGH * total:
            return sides
    raise SparsityError(
        f"neither blocks of {' or '.join(map(str, blocks))} nor smaller ones divide half of the model's weights; "
        "pass a BlockSparsity with a block that does, in place of the sparsity alone"
    )


def device_of(model: nn.Module) -> str:
    """The kind of device that holds the model's first parameter."""
    return next((parameter.device.type for parameter in model.parameters()), torch.device("cpu").type)
