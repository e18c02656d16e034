"""Published accelerators as Specs."""

from acf.sim.accelerators.gpu import GPU_H200, GPU_V100, GpuRoofline
from acf.sim.accelerators.sat import Sat
from acf.sim.accelerators.spartann import SparTANN
from acf.sim.accelerators.tensorcore import TensorCore
from acf.sim.accelerators.tensordash import TensorDash

__all__ = ["GPU_H200", "GPU_V100", "GpuRoofline", "Sat", "SparTANN", "TensorCore", "TensorDash"]
