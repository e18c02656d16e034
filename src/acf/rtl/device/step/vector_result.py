"""What the vector work of a step leaves behind."""

from dataclasses import dataclass, field

import numpy as np

from acf.rtl.device.step.layer import Floats


@dataclass(frozen=True, eq=False)
class VectorResult:
    """``y`` and ``dz [tokens, outputs]``, ``channels`` as in `StepState`; ``loss [tokens]``, where it is computed."""

    y: Floats
    dz: Floats
    channels: Floats
    loss: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
