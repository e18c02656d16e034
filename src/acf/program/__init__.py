"""The fabric's work: one matrix product as packets in order, for the simulator and for the hardware."""

from acf.program.balance import BALANCERS
from acf.program.lower import lower_gemm
from acf.program.program import PARALLEL, SERIAL, Program, Stream
from acf.program.shape import FabricShape

__all__ = ["BALANCERS", "PARALLEL", "SERIAL", "FabricShape", "Program", "Stream", "lower_gemm"]
