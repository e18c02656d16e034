"""The kernels of `acf.ops` on this machine's CPU, in float32. Times are measured."""

from typing import ClassVar

import numpy as np
import torch

from acf.runtime.backends.backend import Backend, Launched, measured
from acf.runtime.backends.kernels import build_topology, multiply
from acf.runtime.numbers import Values
from acf.runtime.timeline import Cost
from acf.sparse import BlockTopology

CPU = torch.device("cpu")


class Cpu(Backend):
    """Absent blocks cost nothing where a native kernel has the block's size."""

    name: ClassVar[str] = "cpu"

    def compute(self, launched: Launched) -> tuple[Values, Cost]:
        """One call of a kernel."""
        program, product = launched.program, launched.program.product
        assert product is not None
        topology = program.cache.get("cpu topology")
        if not isinstance(topology, BlockTopology):
            topology = program.cache["cpu topology"] = build_topology(product.weight, CPU)
        a, b = (torch.from_numpy(np.ascontiguousarray(each)) for each in launched.operands)
        return measured(lambda: np.ascontiguousarray(multiply(product, (a, b), topology).numpy()))
