"""Published accelerators as Specs."""

from acf.sim.accelerators.gpu import GpuRoofline
from acf.sim.accelerators.sat import Sat
from acf.sim.accelerators.spartann import SparTANN
from acf.sim.accelerators.tensorcore import TensorCore
from acf.sim.accelerators.tensordash import TensorDash

__all__ = ["GpuRoofline", "Sat", "SparTANN", "TensorCore", "TensorDash"]
