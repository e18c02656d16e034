"""The optimizers of a step: what an update reads and writes, its constants, and its values by the model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from acf.errors import RtlError
from acf.rtl.design.vector.model import VectorInputs, run_pass

if TYPE_CHECKING:
    from acf.rtl.device.step.layer import StepSizes

Floats = NDArray[np.float32]


def _sgd_constants(sizes: "StepSizes") -> list[float]:
    return [sizes.weight_decay, sizes.momentum, -sizes.learning_rate, 0.0, 0.0]


def _adam_constants(sizes: "StepSizes") -> list[float]:
    """Those of `acf.rtl.design.vector.adam_program`; they change with the step, by its bias corrections."""
    if not (sizes.learning_rate > 0 and sizes.momentum < 1 and sizes.second_beta < 1):
        raise RtlError(
            f"Adam with learning rate {sizes.learning_rate} and betas {sizes.momentum}, {sizes.second_beta} cannot "
            "update; give a rate above 0 and betas below 1"
        )
    first, second = 1 - sizes.momentum**sizes.step, 1 - sizes.second_beta**sizes.step
    k = sizes.learning_rate * second**0.5 / first
    eps = sizes.optimizer_eps * second**0.5
    decay = 1 - sizes.learning_rate * sizes.weight_decay
    return [1 - sizes.momentum, 1 - sizes.second_beta, -2 / k**2, eps / k, decay]


@dataclass(frozen=True)
class Optimizer:
    """``moments``: float32 numbers that are kept for every weight. ``x``, ``second_x`` and ``y``: what each stream is.

    A stream is the ``gradient``, the ``moments`` (those of a vector one behind another) or the ``master`` weights.
    """

    program: tuple[str, str, int]
    moments: int
    x: str
    second_x: str
    y: str
    constants: Callable[["StepSizes"], list[float]]

    def lane_constants(self, sizes: "StepSizes", lanes: int) -> Floats:
        """The constants of an update, for every lane."""
        return np.repeat(np.array(self.constants(sizes), dtype=np.float32)[:, None], lanes, axis=1)

    def updated(self, gradient: Floats, value: Floats, moments: Floats, sizes: "StepSizes") -> Floats:
        """New moments, value and bf16 operand, ``[moments + 2, *gradient.shape]``, of matrices."""
        vectors, lanes = gradient.shape
        streams = {"gradient": gradient[None], "moments": moments, "master": value[None]}
        x = np.concatenate([streams[self.x], streams[self.second_x]]).swapaxes(0, 1).reshape(-1, lanes)
        y = np.repeat(streams[self.y][0], len(x) // vectors, axis=0)
        inputs = VectorInputs(x, y, np.zeros((1, lanes), dtype=bool), self.lane_constants(sizes, lanes))
        out = run_pass(self.program, inputs, vectors).out.view(np.float32)
        return np.ascontiguousarray(out.reshape(vectors, self.moments + 2, lanes).swapaxes(0, 1))


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(("sgd", "update", 0), 1, "gradient", "moments", "master", _sgd_constants),
    "adam": Optimizer(("adam", "update", 0), 2, "moments", "master", "gradient", _adam_constants),
}
"""By name."""


def optimizer_named(name: str) -> Optimizer:
    """The optimizer of that name."""
    if name not in OPTIMIZERS:
        raise RtlError(f"optimizer {name!r} is not one of {', '.join(OPTIMIZERS)}; use one of these")
    return OPTIMIZERS[name]
